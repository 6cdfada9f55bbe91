"""The script that puts PyMC's full-rank ADVI beside ours: its network, its ELBO, without PyMC."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

_file = Path(__file__).parents[2] / "scripts" / "pymc_full_rank.py"
_spec = importlib.util.spec_from_file_location("pymc_full_rank", _file)
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def test_the_network_is_a_perceptron_of_57_weights():
    assert script.SIZE == 57
    generator = np.random.default_rng(0)
    weights, x = generator.normal(size=57), generator.normal(size=(4, 2))
    first, second, third = weights[:10].reshape(2, 5), weights[15:40].reshape(5, 5), weights[45:55].reshape(5, 2)
    hidden = np.tanh(np.tanh(x @ first + weights[10:15]) @ second + weights[40:45])
    np.testing.assert_allclose(script.outputs(weights, x, np.tanh), hidden @ third + weights[55:])


def test_the_elbo_is_the_expected_log_likelihood_less_the_exact_kl(monkeypatch):
    """A fit whose weights are known: the log-likelihood by torch, the KL of two normals by torch."""
    mean, std = np.linspace(-1, 1, 57), 0.01

    def fitted(command, **_):
        np.savez(command[command.index("--fit") + 2], mean=mean, covariance=std**2 * np.eye(57), version="none")

    monkeypatch.setattr(script.subprocess, "run", fitted)
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(30, 2)), generator.integers(0, 2, 30)
    found = script.one_fit(argparse.Namespace(python="python", steps=1, rate=0.1), x, y, x, y, 0)
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(torch.tensor(mean), std), normal(0.0, 1.0)).sum()
    assert found["kl"] == pytest.approx(float(kl), rel=1e-6)
    logits = torch.tensor(script.outputs(mean, x, np.tanh))
    likelihood = -torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="sum")
    # Weights this narrow give the likelihood of their means: it varies by less than a nat between draws.
    assert found["elbo"] + found["kl"] == pytest.approx(float(likelihood), abs=0.1)
    assert found["accuracy"] == pytest.approx(float((logits.argmax(1).numpy() == y).mean()), abs=0.07)


def test_what_the_page_says_of_pymc_is_what_the_file_says():
    results = Path(__file__).parents[3] / "docs" / "results"
    page, found = (
        json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("hmc-distance", "pymc-full-rank")
    )
    (told,) = [one for one in page["shortfalls"] if "PyMC" in one]
    less = {run["rate"]: run["moons"]["pymc_less_ours"] for run in found["runs"]}
    assert f"{less[0.001]['mean']:.1f} nats higher" in told
    assert f"{-less[0.01]['mean']:.0f} nats lower" in told
    assert len(less[0.001]["values"]) == len(less[0.01]["values"]) == 3
