"""Censored targets: probabilities of the tails in place of densities."""

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf
from bayesify.evaluation.evaluation import score
from bayesify.likelihoods import Censored, Gaussian, Laplace, StudentT

OUTPUTS = torch.tensor([[[0.3], [-1.2], [0.8]], [[1.5], [0.0], [-0.4]]], dtype=torch.float64)
MEANS = 2.0 + 3.0 * OUTPUTS[..., 0].numpy()


@pytest.mark.parametrize(
    "base, reference",
    [(Gaussian(0.7), stats.norm(MEANS, 0.7)), (Laplace(0.7), stats.laplace(MEANS, 0.7))],
    ids=["gaussian", "laplace"],
)
def test_sides_choose_density_or_tail(base, reference):
    likelihood = Censored(base, location=2.0, scale=3.0)
    numbers = np.array([2.5, 0.1, 3.0])
    targets = likelihood.prepare(np.stack([numbers, [0.0, 1.0, -1.0]], 1))
    expected = np.stack(
        [reference.logpdf(numbers)[:, 0], reference.logsf(numbers)[:, 1], reference.logcdf(numbers)[:, 2]], 1
    )
    np.testing.assert_allclose(likelihood.log_prob(OUTPUTS, targets), expected, rtol=1e-10)


def test_limits_say_which_targets_are_censored():
    likelihood = Censored(Gaussian(0.7), lower=0.0, upper=4.0, location=2.0, scale=3.0)
    targets = likelihood.prepare([-5.0, 1.0, 7.0])
    assert targets.tolist() == [0.0, 1.0, 4.0]
    reference = stats.norm(MEANS, 0.7)
    expected = np.stack([reference.logcdf(0.0)[:, 0], reference.logpdf(1.0)[:, 1], reference.logsf(4.0)[:, 2]], 1)
    np.testing.assert_allclose(likelihood.log_prob(OUTPUTS, targets), expected, rtol=1e-10)


def test_a_censored_fit_recovers_the_line_that_a_plain_one_flattens():
    torch.manual_seed(0)
    x = torch.rand(400, 1) * 4 - 2
    y = (2.0 * x.squeeze(1) + 0.3 * torch.randn(400)).clamp(max=1.0)  # half of them end at the limit

    def slope(likelihood):
        line = bf.PointEstimate(torch.nn.Linear(1, 1), likelihood)
        line.fit((x, y), epochs=40, batch_size=64, learning_rate=0.05, progress=False)
        ends = line.predict(torch.tensor([[-1.0], [1.0]])).mean
        return float(ends[1] - ends[0]) / 2

    assert slope(Gaussian(0.3)) < 1.6
    assert slope(Censored(Gaussian(0.3), upper=1.0)) == pytest.approx(2.0, abs=0.06)


def test_crps_ignores_what_lies_beyond_a_censored_target():
    grid = np.linspace(-12, 0, 200_001)
    expected = np.trapezoid(stats.norm.cdf(grid) ** 2, grid)
    likelihood = Censored(Gaussian(1.0))
    answer = bf.Predictive(torch.zeros(1, 1, 1, dtype=torch.float64), likelihood)
    result = score(answer, torch.tensor([[0.0, 1.0]]))
    assert result.crps == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Censored(StudentT(4.0)), "gaussian .* or laplace"),
        (lambda: Censored(Gaussian("half-cauchy(1)")), "noise known, learned"),
        (lambda: Censored(lower=2.0, upper=1.0), "lower must be below upper"),
        (lambda: Censored(lower="low"), "lower must be a finite number"),
        (lambda: Censored().prepare([1.0, 2.0]), "give lower= or upper="),
        (lambda: Censored().prepare([[1.0, 2.0]]), "must be -1, 0 or 1, got 2"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
