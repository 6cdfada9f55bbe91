"""The curvature of a likelihood in its outputs is the expected square of its score, by quadrature over targets."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayesify.likelihoods import Bernoulli, Gaussian, Laplace, LogNormal, NegativeBinomial, Ordinal, Poisson, StudentT
from bayesify.methods.laplace.curvature.outputs import root

COUNTS = np.arange(400.0)
GRID = np.linspace(-400, 400, 800_001)
LOGS = np.linspace(-30, 30, 600_001)
CASES = [
    (Gaussian(0.7, scale=2.0), lambda f: (GRID, stats.norm(2 * f, 0.7).pdf(GRID) * 1e-3)),
    (Laplace(0.7, scale=2.0), lambda f: (GRID, stats.laplace(2 * f, 0.7).pdf(GRID) * 1e-3)),
    (StudentT(5.0, 0.7, scale=2.0), lambda f: (GRID, stats.t(5.0, 2 * f, 0.7).pdf(GRID) * 1e-3)),
    # In the units of log y, where the densities of both have the same mass; targets beyond e^30 carry none of it.
    (LogNormal(0.7, scale=2.0), lambda f: (np.exp(LOGS), stats.norm(2 * f, 0.7).pdf(LOGS) * 1e-4)),
    (Poisson(), lambda f: (COUNTS, stats.poisson(np.exp(f)).pmf(COUNTS))),
    (NegativeBinomial(0.5), lambda f: (COUNTS, stats.nbinom(2, 2 / (2 + np.exp(f))).pmf(COUNTS))),
    (Bernoulli(), lambda f: (np.arange(2), stats.bernoulli(1 / (1 + np.exp(-f))).pmf(np.arange(2)))),
    (Ordinal(cuts=[-1.0, 0.5, 2.0]), None),
]


@pytest.mark.parametrize("likelihood, targets", CASES, ids=[type(case[0]).__name__ for case in CASES])
@pytest.mark.parametrize("place", [-0.8, 1.3])
def test_curvature_is_the_expected_squared_score(likelihood, targets, place):
    outputs = torch.tensor([[place]], dtype=torch.float64)
    if targets is None:
        y, weights = np.arange(4), likelihood.probs(outputs.unsqueeze(0))[0, 0].numpy()
    else:
        y, weights = targets(place)
    many = outputs.expand(len(y), 1).clone().requires_grad_()
    prepared = likelihood.prepare(y)
    (score,) = torch.autograd.grad(likelihood.log_prob(many.unsqueeze(0), prepared).sum(), many)
    expected = float((torch.from_numpy(weights) * score.squeeze(1).square()).sum())
    found = float(root(likelihood, outputs, prepared[:1]).square())
    assert found == pytest.approx(expected, rel=2e-3)
