"""Convergence is ArviZ's R-hat and effective sample size, and says so in words."""

import sys

import numpy as np
import pytest

from bayesify.methods.convergence import arviz_statistics, effective, r_hat
from bayesify.methods.hmc.diagnostics import Diagnosis


def test_they_are_what_arviz_gives():
    arviz = arviz_statistics()
    values = np.random.default_rng(0).normal(size=(4, 100, 2, 3)).cumsum(1)
    expected = [[arviz.rhat(values[..., i, j]) for j in range(3)] for i in range(2)]
    assert np.allclose(r_hat(values), np.ravel(expected))
    assert np.allclose(effective(values, "tail")[0], arviz.ess(values[..., 0, 0], method="tail", prob=(0.05, 0.95)))


def test_independent_draws_are_all_effective_and_shifted_chains_are_seen():
    values = np.random.default_rng(0).normal(size=(8, 500, 1))
    assert abs(effective(values)[0] / 4000 - 1) < 0.2
    assert r_hat(values)[0] < 1.005
    values[0] += 1.0
    assert r_hat(values)[0] > 1.02


def test_what_never_moves_is_agreed_on_and_what_is_stuck_is_not():
    constant, stuck = np.ones((4, 50)), np.repeat(np.arange(4.0)[:, None], 50, 1)
    assert r_hat(constant)[0] == 1
    assert effective(constant)[0] == 200
    assert r_hat(stuck)[0] > 10


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 4 draws of each chain"):
        r_hat(np.ones((4, 3)))


def test_without_arviz_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bayesify\[mcmc\]'"):
        r_hat(np.random.default_rng(0).normal(size=(2, 10)))


@pytest.mark.parametrize("scales, converged", [(None, True), (1.02, False)])
def test_the_verdict_is_in_words_and_in_numbers(scales, converged):
    diagnosis = Diagnosis(1.004, 812.0, 1100.0, 640.0, 1.9, scales, 2, 0.81, 4, 500, 150)
    assert diagnosis.converged == converged
    assert ("NOT converged" in str(diagnosis)) != converged
    assert "1.0040" in str(diagnosis)
    assert diagnosis.to_dict()["converged"] == converged
