"""Runs that version 0.1.0 wrote, one for each method: they load, and predict what they predicted then."""

from pathlib import Path

import numpy as np
import pytest
import torch

import bayesify as bf

RUNS = Path(__file__).with_name("saved_runs")
INPUTS = torch.linspace(-2, 2, 40).reshape(20, 2)


@pytest.mark.parametrize("name", sorted(run.name for run in RUNS.iterdir()))
def test_a_run_of_an_earlier_version_predicts_the_same(name):
    method = bf.load(RUNS / name)
    assert method.name == name
    predictive = method.predict(INPUTS, draws=7, seed=1)
    with np.load(RUNS / name / "predictions.npz") as expected:
        for part in ("outputs", "probs", "entropy", "epistemic"):
            # Rounding differs between processors; on one machine the bits are the same.
            np.testing.assert_allclose(getattr(predictive, part).numpy(), expected[part], rtol=2e-5, atol=2e-6)


def test_every_saved_run_is_of_a_known_method():
    assert {run.name for run in RUNS.iterdir()} <= set(bf.methods.CARDS)
