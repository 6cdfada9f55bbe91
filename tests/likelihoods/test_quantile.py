"""Quantile regression: the pinball loss in training, one distribution through the quantiles in predictions."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import bayesify as bf
from bayesify.likelihoods import Quantile

LEVELS = [0.1, 0.4, 0.9]


def rule(**settings):
    return Quantile(LEVELS, location=5.0, scale=2.0, **settings)


def quantiles_of(outputs):
    return 5.0 + 2.0 * (outputs + torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64)))


def test_training_minimises_the_mean_pinball_loss_of_the_levels():
    outputs = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.tensor([4.0, 5.0, 9.0, 1.0], dtype=torch.float64)
    given = quantiles_of(outputs).numpy()
    # In scipy's parameters, the asymmetric Laplace density of level q has kappa = sqrt(q / (1 - q)).
    expected = 0.0
    for i, level in enumerate(LEVELS):
        kappa, width = np.sqrt(level / (1 - level)), 0.6 / np.sqrt(level * (1 - level))
        expected = expected + stats.laplace_asymmetric(kappa, given[..., i], width).logpdf(y.numpy()) / 3
    np.testing.assert_allclose(rule(noise=0.6).log_prob(outputs, y), expected, rtol=1e-9)


def test_the_distribution_goes_through_the_quantiles_and_is_normalised():
    outputs = torch.zeros(1, 1, 3, dtype=torch.float64)
    likelihood = rule()
    through = quantiles_of(outputs)[0, 0]
    for level, value in zip(LEVELS, through, strict=True):
        assert float(likelihood.cdf(outputs, value.reshape(1))) == pytest.approx(level, abs=1e-9)
        assert float(likelihood.quantile(outputs, torch.tensor(level).double())) == pytest.approx(float(value))

    def density(y):
        return float(likelihood.log_density(outputs, torch.tensor([y]).double()).exp())

    ends = (-60.0, 70.0)
    breaks = through.tolist()
    assert integrate.quad(density, *ends, points=breaks, limit=200)[0] == pytest.approx(1.0, abs=1e-6)
    mean = integrate.quad(lambda y: y * density(y), *ends, points=breaks, limit=200)[0]
    assert float(likelihood.mean(outputs)) == pytest.approx(mean, abs=1e-5)
    spread = integrate.quad(lambda y: (y - mean) ** 2 * density(y), *ends, points=breaks, limit=200)[0]
    assert float(likelihood.noise_variance(outputs)) == pytest.approx(spread, rel=1e-5)
    for y in (-3.0, 4.0, 6.0, 20.0):
        below = integrate.quad(density, ends[0], y, points=[b for b in breaks if b < y] or None, limit=200)[0]
        assert float(likelihood.cdf(outputs, torch.tensor([y]).double())) == pytest.approx(below, abs=1e-6)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.1, 0.3, 0.77, 0.95, 0.9999])
def test_quantiles_invert_the_distribution_function_even_where_they_cross(level):
    outputs = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    value = rule().quantile(outputs, torch.tensor(level, dtype=torch.float64))
    np.testing.assert_allclose(rule().cdf(outputs, value), level, atol=1e-9)


def test_several_targets_have_their_own_units():
    torch.manual_seed(0)
    outputs, targets = torch.randn(2, 4, 6), torch.randn(4, 2)
    for noise in ("learned", 0.3):
        both = Quantile(LEVELS, noise, location=[1.0, -1.0], scale=[2.0, 0.5])
        columns = [Quantile(LEVELS, noise, location=a, scale=b) for a, b in ((1.0, 2.0), (-1.0, 0.5))]
        for name in ("log_prob", "log_density"):
            apart = sum(getattr(c, name)(outputs[..., i::2], targets[:, i]) for i, c in enumerate(columns))
            torch.testing.assert_close(getattr(both, name)(outputs, targets), apart)
    assert both.mean(outputs).shape == both.cdf(outputs, targets).shape == (2, 4, 2)


def test_intervals_of_skewed_noise_cover_what_they_say():
    torch.manual_seed(0)
    x = torch.rand(3000, 1)
    y = 10 * x.squeeze(1) - 2 * torch.rand(3000).log()  # exponential noise: all above the line
    likelihood = Quantile([0.05, 0.5, 0.95], location=float(y.mean()), scale=float(y.std()))
    fitted = bf.PointEstimate(bf.networks.mlp(1, 3, units=16), likelihood)
    fitted.fit((x, y), epochs=30, learning_rate=0.01, progress=False)
    grid = torch.rand(2000, 1)
    truth = 10 * grid.squeeze(1) - 2 * torch.rand(2000).log()
    lower, upper = fitted.predict(grid).interval(0.9)
    for share, expected in ((truth < lower, 0.05), (truth > upper, 0.05)):
        assert float(share.double().mean()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("levels", [[0.5], [0.5, 0.1], [0.0, 0.5], [0.2, 0.2], "half"])
def test_levels_that_make_no_sense_are_refused(levels):
    with pytest.raises(ValueError, match="levels must"):
        Quantile(levels)


def test_a_text_lists_the_levels():
    parsed = bf.likelihoods.parse("quantile:0.05,0.5,0.95")
    assert parsed.levels == [0.05, 0.5, 0.95]
    assert "pseudo-likelihood" in str(bf.PointEstimate(torch.nn.Linear(1, 3), parsed).summary().notes)
