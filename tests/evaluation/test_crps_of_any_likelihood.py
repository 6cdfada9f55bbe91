"""The CRPS of every likelihood over numbers is that of its own distribution, by quadrature of scipy's."""

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify import likelihoods
from bayesify.evaluation.evaluation import score

OUTPUTS = torch.tensor([[[0.2], [-0.5], [1.0]], [[0.9], [-0.1], [0.4]]], dtype=torch.float64)
TARGETS = {False: np.array([0.3, 2.5, -6.0]), True: np.array([0.0, 3.0, 9.0])}
CASES = [
    (likelihoods.Gaussian(0.7), lambda f: stats.norm(f, 0.7)),
    (likelihoods.Laplace(0.7), lambda f: stats.laplace(f, 0.7)),
    (likelihoods.StudentT(3.0, 0.7), lambda f: stats.t(3.0, f, 0.7)),
    (likelihoods.LogNormal(0.7), lambda f: stats.lognorm(0.7, scale=np.exp(f))),
    (likelihoods.Poisson(), lambda f: stats.poisson(np.exp(f))),
    (likelihoods.NegativeBinomial(0.5), lambda f: stats.nbinom(2.0, 2.0 / (2.0 + np.exp(f)))),
]


@pytest.mark.parametrize("likelihood, reference", CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(likelihood, reference):
    targets = TARGETS[likelihood.discrete]
    targets = np.abs(targets) if isinstance(likelihood, likelihoods.LogNormal) else targets
    grid = np.arange(0, 400.0) if likelihood.discrete else np.linspace(-300, 300, 600_001)
    expected = []
    for i, y in enumerate(targets):
        below = np.mean([reference(float(draw[i, 0])).cdf(grid) for draw in OUTPUTS], 0)
        squares = (below - (grid >= y)) ** 2
        expected.append(squares.sum() if likelihood.discrete else np.trapezoid(squares, grid))
    result = score(bf.Predictive(OUTPUTS, likelihood), torch.from_numpy(targets))
    assert result.crps == pytest.approx(np.mean(expected), rel=1e-3)


def test_crps_of_mixtures_and_quantiles_is_that_of_their_distribution_function():
    torch.manual_seed(0)
    y = torch.tensor([0.3, 2.5, -4.0]).double()
    for likelihood, width in ((likelihoods.Mixture(2), 6), (likelihoods.Quantile([0.1, 0.5, 0.9]), 3)):
        outputs = torch.randn(4, 3, width).double()
        answer = bf.Predictive(outputs, likelihood)
        grid = torch.linspace(-60, 60, 60_001).double()
        below = bf.Predictive(outputs.repeat(1, len(grid), 1), likelihood).cdf(grid.repeat_interleave(3)).view(-1, 3)
        expected = torch.trapezoid((below - (grid.unsqueeze(1) >= y).double()) ** 2, grid, dim=0).mean()
        assert score(answer, y).crps == pytest.approx(float(expected), rel=2e-3)


@pytest.mark.parametrize("dispersion", [1.0, 0.001])
def test_crps_of_large_counts_is_the_sum_over_all_of_them(dispersion):
    """Far counts are taken in blocks: wide tails, narrow peaks far apart, and targets on both sides."""
    means, targets = np.array([[300.0, 90.0, 4000.0], [900.0, 3000.0, 60.0]]), np.array([2500.0, 0.0, 3900.0])
    grid, size = np.arange(30_000.0), 1 / dispersion
    below = stats.nbinom(size, size / (size + means[..., None])).cdf(grid).mean(0)
    expected = ((below - (grid >= targets[:, None])) ** 2).sum(1).mean()
    answer = bf.Predictive(torch.from_numpy(np.log(means)).unsqueeze(-1), likelihoods.NegativeBinomial(dispersion))
    assert score(answer, torch.from_numpy(targets)).crps == pytest.approx(expected, rel=5e-4)
