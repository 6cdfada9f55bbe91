"""Divergences and densities of the priors, against quadrature, scipy and Monte Carlo."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from bayesify import noise, priors
from bayesify.priors import (
    Cauchy,
    Flat,
    Laplace,
    LogUniform,
    Normal,
    ScaleMixture,
    StudentT,
    Weight,
    WeightPrior,
)

MEANS = [-3.0, -0.4, 0.0, 1e-3, 0.9, 7.0]
STDS = [1e-3, 0.05, 0.7, 4.0]
SCALES = [0.03, 1.0, 12.0]
GRID = [(m, s, b) for m in MEANS for s in STDS for b in SCALES]

TWO_NORMALS = SimpleNamespace(
    cdf=lambda w: 0.3 * stats.norm.cdf(w, 0.2, 2.0) + 0.7 * stats.norm.cdf(w, 0.2, 0.1),
    logpdf=lambda w: np.logaddexp(
        math.log(0.3) + stats.norm.logpdf(w, 0.2, 2.0), math.log(0.7) + stats.norm.logpdf(w, 0.2, 0.1)
    ),
)
# Every proper prior and the same distribution in scipy: a new prior is one line here.
PROPER = [
    (Normal(0.7, 0.3), stats.norm(0.3, 0.7)),
    (Laplace(0.7, -0.3), stats.laplace(-0.3, 0.7)),
    (Cauchy(0.7, 0.3), stats.cauchy(0.3, 0.7)),
    (StudentT(3.0, 0.7, 0.3), stats.t(3.0, 0.3, 0.7)),
    (StudentT(0.8, 2.0), stats.t(0.8, 0.0, 2.0)),
    (ScaleMixture(0.3, 2.0, 0.1, 0.2), TWO_NORMALS),
]
NEARLY_NORMAL = [
    (StudentT(2e4, 2.0), stats.t(2e4, 0.0, 2.0)),
    (StudentT(3e7, 2.0), stats.norm(0.0, 2.0)),
]


def text_of(value):
    return getattr(value, "text", "")


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def expectation(function, mean: float, std: float, kinks: tuple[float, ...] = ()) -> float:
    """E[function(w)] for w ~ N(mean, std^2), by quadrature over twelve standard deviations."""
    kinks = sorted(k for k in ((x - mean) / std for x in kinks) if -12 < k < 12)
    edges = [-12.0, *kinks, 12.0]
    density = lambda z: math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)  # noqa: E731
    return sum(
        integrate.quad(lambda z: density(z) * function(mean + std * z), a, b, epsabs=1e-11, epsrel=1e-11, limit=200)[0]
        for a, b in itertools.pairwise(edges)
    )


def negative_entropy(std: float) -> float:
    return -math.log(std) - 0.5 * math.log(2 * math.pi * math.e)


@pytest.mark.parametrize(("kind", "reference"), [(Normal, stats.norm), (Laplace, stats.laplace)])
def test_the_closed_divergence_is_the_integral(kind, reference):
    mean, std, scale = (torch.tensor(column, dtype=torch.float64) for column in zip(*GRID, strict=True))
    ours = kind(1.0, 0.25).closed_kl(mean, std, scale)
    for value, (m, s, b) in zip(ours.tolist(), GRID, strict=True):
        # The log densities are written out, as scipy's cost a thousand times more per point of the quadrature.
        if reference is stats.norm:

            def log_prior(w, b=b):
                return -0.5 * ((w - 0.25) / b) ** 2 - math.log(b) - 0.5 * math.log(2 * math.pi)
        else:
            log_prior = lambda w, b=b: -abs(w - 0.25) / b - math.log(2 * b)  # noqa: E731
        assert log_prior(0.8) == pytest.approx(reference(0.25, b).logpdf(0.8), rel=1e-12)
        exact = negative_entropy(s) - expectation(log_prior, m, s, kinks=(0.25,))
        assert value == pytest.approx(exact, rel=1e-8, abs=1e-8)


def test_a_flat_prior_costs_minus_the_entropy():
    std = double(1e-6, 0.3, 40.0)
    expected = -stats.norm(0, std.numpy()).entropy()
    np.testing.assert_allclose(Flat().closed_kl(double(-5, 0, 5), std).numpy(), expected, rtol=1e-12)


def test_the_log_uniform_approximation_stays_within_its_stated_error():
    # The improper KL is fixed up to a constant, which both sides choose to be zero at mean zero.
    zero = negative_entropy(1.0) + expectation(lambda w: math.log(abs(w)), 0.0, 1.0, kinks=(0.0,))
    assert zero == pytest.approx(-0.5 * math.log(2 * math.pi * math.e) - 0.5 * (np.euler_gamma + math.log(2)), abs=1e-8)
    worst = 0.0
    for ratio in [0.0, *np.logspace(-3, 3, 61)]:
        for std in (0.01, 1.0, 30.0):
            logarithm = lambda w: math.log(abs(w)) if w else -745.0  # noqa: E731
            integral = negative_entropy(std) + expectation(logarithm, ratio * std, std, kinks=(0.0,)) - zero
            ours = LogUniform().closed_kl(double(ratio * std), double(std)).item()
            assert ours == pytest.approx(LogUniform().closed_kl(double(-ratio * std), double(std)).item(), rel=1e-12)
            worst = max(worst, abs(ours - integral))
    assert 1e-3 < worst < 0.01


def test_every_proper_prior_is_compared_with_scipy():
    proper = {
        kind for kind in priors.PRIORS.values() if kind.proper and kind not in {priors.Posterior, priors.Pretrained}
    }
    assert {type(prior) for prior, _ in PROPER} == proper


@pytest.mark.parametrize(("prior", "reference"), PROPER, ids=text_of)
def test_the_text_form_reads_back_as_the_same_prior(prior, reference):
    assert priors.parse(prior.text) == prior
    assert getattr(priors, type(prior).__name__) is type(prior)


@pytest.mark.parametrize(("prior", "reference"), [*PROPER, *NEARLY_NORMAL], ids=text_of)
def test_a_density_matches_scipy_and_integrates_to_one(prior, reference):
    weights = torch.cat([torch.linspace(-8, 8, 101), torch.tensor([-300.0, 1e-7, 300.0])]).double()
    ours = prior.log_density(weights).numpy()
    expected = reference.logpdf(weights.numpy())
    tolerance = 2e-6 if getattr(prior, "df", 0) > 1e6 else 1e-11
    inside = np.abs(weights.numpy()) < 100 if getattr(prior, "df", 0) > 1e6 else slice(None)
    np.testing.assert_allclose(ours[inside], expected[inside], rtol=tolerance, atol=tolerance)
    # With w = sinh(s) even the Cauchy's tails fall fast enough for quadrature.
    s = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    mass = torch.trapezoid(torch.exp(prior.log_density(torch.sinh(s)) + torch.log(torch.cosh(s))), s)
    assert mass.item() == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("sigma2", [0.3, 0.000335, math.exp(-8)])
def test_a_scale_mixture_matches_its_two_normals(sigma2):
    prior = ScaleMixture(0.75, 1.3, sigma2, mean=0.2)
    weights = np.concatenate([np.linspace(-5, 5, 101), 0.2 + sigma2 * np.linspace(-6, 6, 101)])
    parts = [
        math.log(0.75) + stats.norm(0.2, 1.3).logpdf(weights),
        math.log(0.25) + stats.norm(0.2, sigma2).logpdf(weights),
    ]
    ours = prior.log_density(torch.from_numpy(weights)).numpy()
    np.testing.assert_allclose(ours, np.logaddexp(*parts), rtol=1e-11, atol=1e-11)
    edges = [0.2 - 20, 0.2 - 10 * sigma2, 0.2, 0.2 + 10 * sigma2, 0.2 + 20]
    mass = sum(
        integrate.quad(lambda w: prior.log_density(double(w)).exp().item(), a, b, epsabs=1e-10)[0]
        for a, b in itertools.pairwise(edges)
    )
    assert mass == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", [0.0, 1e-30, 1e-4, 50.0, 1e6])
def test_a_scale_mixture_and_its_slope_stay_finite_far_from_both_scales(dtype, weight):
    w = torch.tensor([weight, -weight], dtype=dtype, requires_grad=True)
    value = ScaleMixture(0.25, 1.0, math.exp(-8)).log_density(w)
    (slope,) = torch.autograd.grad(value.sum(), w)
    assert torch.isfinite(value).all()
    assert torch.isfinite(slope).all()
    if weight >= 50:  # out there the wide component is alone
        np.testing.assert_allclose(slope.numpy(), [-weight, weight], rtol=1e-5)
        assert value[0].item() == pytest.approx(math.log(0.25) + stats.norm.logpdf(weight), rel=1e-5)


@pytest.mark.parametrize("prior", [Normal(0.4, 0.1), Laplace(0.4, 0.1)], ids=str)
def test_monte_carlo_agrees_with_the_closed_divergence(prior):
    mean, std = double(-1.0, 0.0, 0.3, 2.0), double(0.5, 1.5, 0.02, 0.3)
    draws = mean + std * noise.normal(noise.keys(3, 1, draws=range(4)), 200_000).double().T
    log_q = torch.distributions.Normal(mean, std).log_prob(draws)
    estimates = log_q - prior.log_density(draws)
    error = estimates.std(0) / math.sqrt(len(draws))
    z = (estimates.mean(0) - prior.closed_kl(mean, std)) / error
    assert z.abs().max() < 4.0  # four z-scores: chance 3e-4


@pytest.mark.parametrize(
    "prior",
    [prior for prior, _ in PROPER if prior.closed_kl(torch.zeros(1), torch.ones(1)) is None]
    + [ScaleMixture(0.75, 1.0, 0.05)],
    ids=str,
)
def test_the_estimated_divergence_is_unbiased(prior):
    mean, std = double(-1.0, 0.0, 0.3), double(0.5, 1.5, 0.02)
    weights = WeightPrior(prior, [Weight("w", (3,), 0, 1)]).double()
    draws = mean + std * noise.normal(noise.keys(4, 1, draws=range(3)), 100_000).double().T
    exact = sum(
        negative_entropy(s) - expectation(lambda w: prior.log_density(double(w)).item(), m, s, kinks=(0.0, 0.1))
        for m, s in zip(mean.tolist(), std.tolist(), strict=True)
    )
    error = weights.log_density(draws).std() / math.sqrt(len(draws))
    z = (weights.kl(mean, std, draws) - exact) / error
    assert abs(z) < 4.0
    assert error < 0.02


@pytest.mark.parametrize("prior", [Normal(0.4, 0.1), Laplace(0.4, 0.1), Flat(), LogUniform()], ids=str)
def test_the_slope_of_the_closed_divergence_is_exact(prior):
    mean = double(-2.0, -1e-3, 0.0, 0.1, 0.5).requires_grad_()
    std = double(0.3, 1.0, 0.2, 0.7, 2.0).requires_grad_()
    scale = double(0.5, 1.0, 2.0, 0.1, 0.7).requires_grad_()
    assert torch.autograd.gradcheck(prior.closed_kl, (mean, std, scale))


@pytest.mark.parametrize(
    "prior", [p for p, _ in PROPER] + [ScaleMixture(0.75, 1.0, 0.01), Flat(), LogUniform()], ids=str
)
def test_the_slope_of_the_log_density_is_exact(prior):
    weights = double(-2.0, -1e-2, 0.02, 0.11, 0.9).requires_grad_()
    scale = double(0.5, 1.0, 2.0, 0.1, 0.7).requires_grad_()
    assert torch.autograd.gradcheck(prior.log_density, (weights, scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slopes_are_defined_where_the_formulas_have_corners(dtype):
    zero, std = torch.zeros(1, dtype=dtype, requires_grad=True), torch.full((1,), 0.3, dtype=dtype)
    for prior in (Laplace(0.5), LogUniform()):
        for value in (prior.log_density(zero), prior.closed_kl(zero, std)):
            assert torch.isfinite(value).all()
            assert torch.autograd.grad(value.sum(), zero)[0].item() == 0.0


@pytest.mark.parametrize("prior", [Normal(1.0), Laplace(1.0), Flat(), LogUniform()], ids=str)
@pytest.mark.parametrize(("mean", "std"), [(1e4, 1e-6), (0.0, 1e-12), (-30.0, 1e6), (1e-20, 1.0)])
def test_float32_divergences_follow_float64_in_extreme_places(prior, mean, std):
    small = torch.tensor([mean, std], requires_grad=True)
    large = torch.tensor([mean, std], dtype=torch.float64, requires_grad=True)
    value, exact = prior.closed_kl(small[:1], small[1:]), prior.closed_kl(large[:1], large[1:])
    np.testing.assert_allclose(value.item(), exact.item(), rtol=1e-5, atol=1e-6)
    slope, exact_slope = (torch.autograd.grad(v.sum(), x)[0] for v, x in ((value, small), (exact, large)))
    np.testing.assert_allclose(slope.numpy(), exact_slope.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("prior", "reference"), PROPER, ids=text_of)
def test_draws_follow_the_prior(prior, reference):
    draws = prior.sample(noise.keys(11, 1, draws=(0, 1)), 100_000).flatten().double().numpy()
    assert stats.kstest(draws, reference.cdf).pvalue > 1e-3
    signs = np.sign(draws - prior.mean)
    assert abs(signs.mean()) * math.sqrt(len(draws)) < 4.0
    sizes = stats.rankdata(np.abs(draws - prior.mean))
    for lag in (1, 16, 32):  # neither signs nor sizes know their neighbours: |z| < 4
        assert abs((signs[lag:] * signs[:-lag]).mean()) * math.sqrt(len(draws)) < 4.0
        assert abs(np.corrcoef(sizes[lag:], sizes[:-lag])[0, 1]) * math.sqrt(len(draws)) < 4.0


def test_draws_of_differing_families_are_independent_of_each_other():
    names = ["normal:1", "laplace:1", "student-t:3,1", "scale-mixture:0.5,1,0.1", "cauchy:1"]
    size = 64
    weights = [Weight(f"w{i}", (size,), i * size, 1) for i in range(len(names))]
    bound = WeightPrior({f"w{i}": name for i, name in enumerate(names)}, weights)
    draws = bound.sample(noise.keys(5, 1, draws=range(4000))).double().numpy()
    ranks = np.concatenate([stats.rankdata(draws, axis=0), stats.rankdata(np.abs(draws), axis=0)], axis=1)
    z = np.corrcoef(ranks.T)[np.triu_indices(ranks.shape[1], 1)] * math.sqrt(4000 - 1)
    # 204,480 correlations of ranks; the largest is expected near 4.8, and passes 6 with chance 4e-4.
    assert np.abs(z).max() < 6.0
    assert z.std() == pytest.approx(1.0, abs=0.02)


def test_every_proper_prior_is_normalised_at_any_scale_it_is_given():
    s = torch.linspace(-30, 30, 100_001, dtype=torch.float64)
    for prior in (
        priors.parse(t) for t in ("normal:fan_in", "laplace:fan_in", "student-t:4,fan_in", "scale-mixture:0.5,1,0.2")
    ):
        for scale in (0.05, 3.0):
            log_density = prior.log_density(torch.sinh(s), scale=scale, mean=-0.4)
            mass = torch.trapezoid(torch.exp(log_density + torch.log(torch.cosh(s))), s)
            assert mass.item() == pytest.approx(1.0, abs=1e-4)  # the kink of Laplace costs most
