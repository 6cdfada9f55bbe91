"""Mixtures of normals against scipy's normals."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

import bayesify as bf
from bayesify.likelihoods import Mixture


def by_hand(outputs, components, location, scale):
    """Shares, means and standard deviations `[draws, batch, components]` of one target."""
    logits, means, raw = outputs.unflatten(-1, (3, components)).unbind(-2)
    starts = torch.linspace(-1, 1, components, dtype=outputs.dtype)
    shares, means = logits.softmax(-1), location + scale * (starts + means)
    return shares.numpy(), means.numpy(), (scale * functional.softplus(raw)).numpy()


@pytest.fixture
def outputs():
    return torch.randn(3, 5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_density_moments_and_distribution_function_are_those_of_the_components(outputs):
    likelihood = Mixture(3, location=5.0, scale=2.0)
    shares, means, stds = by_hand(outputs, 3, 5.0, 2.0)
    targets = torch.tensor([4.0, 5.5, 7.0, 2.0, 30.0], dtype=torch.float64)
    y = targets.numpy()[:, None]
    likelihood.check_outputs(outputs[0], likelihood.prepare(targets))
    density = (shares * stats.norm.pdf(y, means, stds)).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets)[:, :4], np.log(density)[:, :4], rtol=1e-9)
    assert torch.isfinite(likelihood.log_prob(outputs, targets)).all()
    mean = (shares * means).sum(-1)
    np.testing.assert_allclose(likelihood.mean(outputs), mean, rtol=1e-10)
    variance = (shares * (stds**2 + means**2)).sum(-1) - mean**2
    np.testing.assert_allclose(likelihood.noise_variance(outputs), variance, rtol=1e-9)
    below = (shares * stats.norm.cdf(y, means, stds)).sum(-1)
    np.testing.assert_allclose(likelihood.cdf(outputs, targets), below, rtol=1e-9)
    levels = torch.tensor(0.3, dtype=torch.float64)
    quantiles = likelihood.quantile(outputs, levels)
    np.testing.assert_allclose(likelihood.cdf(outputs, quantiles), 0.3, atol=1e-9)


def test_several_targets_have_their_own_units():
    torch.manual_seed(0)
    outputs, targets = torch.randn(2, 4, 12), torch.randn(4, 2)
    both = Mixture(2, location=[1.0, -1.0], scale=[2.0, 0.5])
    columns = [Mixture(2, location=1.0, scale=2.0), Mixture(2, location=-1.0, scale=0.5)]
    apart = sum(rule.log_prob(outputs[..., i::2], targets[:, i]) for i, rule in enumerate(columns))
    torch.testing.assert_close(both.log_prob(outputs, targets), apart)
    assert both.mean(outputs).shape == both.cdf(outputs, targets).shape == (2, 4, 2)


def test_two_branches_are_found_where_one_normal_averages_them():
    torch.manual_seed(0)
    x = torch.rand(600, 1) * 2 - 1
    y = torch.where(torch.rand(600) < 0.5, 1.0, -1.0) + 0.1 * torch.randn(600)
    nlls = {}
    for text, width in (("mixture:2", 6), ("gaussian:learned", 1)):
        torch.manual_seed(0)
        fitted = bf.PointEstimate(bf.networks.mlp(1, width, units=8), text)
        fitted.fit((x, y), epochs=60, learning_rate=0.02, progress=False)
        nlls[text] = bf.evaluate(fitted, (x, y)).nll
    # log 2 plus the entropy of a normal of width 0.1, against that of a normal of width 1.
    assert nlls["mixture:2"] == pytest.approx(np.log(2) + 0.5 * np.log(2 * np.pi * np.e * 0.01), abs=0.1)
    assert nlls["gaussian:learned"] == pytest.approx(0.5 * np.log(2 * np.pi * np.e), abs=0.1)
