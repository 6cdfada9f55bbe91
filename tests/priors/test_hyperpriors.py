"""Hyperpriors: their densities on the log scale, their text, and the scale variables of a bound prior."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import nn

import bayesify as bf
from bayesify import noise, priors
from bayesify.priors import (
    Cauchy,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    Learned,
    Normal,
    StudentT,
    Weight,
    WeightPrior,
)

LAYERS = [
    Weight("hidden.weight", (5, 3), 0, 3),
    Weight("hidden.bias", (5,), 15, 3),
    Weight("out.weight", (2, 5), 20, 5),
    Weight("out.bias", (2,), 30, 5),
]
# Each hyperprior, and scipy's distribution of tau (or of tau^2).
RANDOM = {
    "half-normal(0.7)": (HalfNormal(0.7), stats.halfnorm(scale=0.7), 1),
    "half-cauchy(2)": (HalfCauchy(2.0), stats.halfcauchy(scale=2.0), 1),
    "inverse-gamma(0.5,2)": (InverseGamma(0.5, 2.0), stats.invgamma(0.5, scale=2.0), 2),
    "inverse-gamma(3,0.2)": (InverseGamma(3.0, 0.2), stats.invgamma(3.0, scale=0.2), 2),
    "inverse-gamma(2,0.5,scale)": (InverseGamma(2.0, 0.5, on="scale"), stats.invgamma(2.0, scale=0.5), 1),
}


# Densities


@pytest.mark.parametrize("text", RANDOM)
def test_the_density_of_the_logarithm_has_the_jacobian(text):
    hyperprior, of_tau, power = RANDOM[text]
    u = np.linspace(-6, 6, 41)
    # With v = tau^power and u = log tau, p(u) = p(v) dv/du = p(v) power v.
    expected = of_tau.logpdf(np.exp(power * u)) + math.log(power) + power * u
    np.testing.assert_allclose(hyperprior.log_density(torch.from_numpy(u)).numpy(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("text", RANDOM)
def test_the_density_of_the_logarithm_integrates_to_one_and_starts_at_its_mode(text):
    hyperprior = RANDOM[text][0]
    grid = np.linspace(-60, 60, 400_001)
    density = np.exp(hyperprior.log_density(torch.from_numpy(grid)).numpy())
    assert integrate.simpson(density, x=grid) == pytest.approx(1.0, abs=1e-9)
    assert grid[density.argmax()] == pytest.approx(hyperprior.initial, abs=1e-3)


def test_a_learned_scale_has_no_density():
    u = torch.tensor([1.0, -2.0], requires_grad=True)
    assert torch.equal(Learned().log_density(u), torch.zeros(2))
    with pytest.raises(ValueError, match="learned scale has no prior and cannot be sampled"):
        Learned().sample(noise.keys(0, 1))


@pytest.mark.parametrize("text", RANDOM)
def test_draws_of_a_scale_follow_scipy(text):
    hyperprior, of_tau, power = RANDOM[text]
    bound = WeightPrior({"*": Normal(hyperprior)}, LAYERS)
    keys = noise.keys(5, 1, draws=range(20_000))
    draws = bound.sample_scales(keys)
    assert draws.shape == (20_000, 1)
    # Kolmogorov and Smirnov: a p-value below 1e-3 would be a chance of one in a thousand, the seed is fixed.
    assert stats.kstest(np.exp(power * draws[:, 0].double().numpy()), of_tau.cdf).pvalue > 1e-3
    assert torch.equal(bound.sample_scales(keys[7]), draws[7])


def test_scales_have_noise_of_their_own():
    bound = WeightPrior("hidden.*=normal:half-normal(1,layer);*=laplace:half-normal(1)", LAYERS)
    keys = noise.keys(6, 1, draws=range(20_000))
    together = torch.cat((bound.sample_scales(keys), bound.sample(keys, torch.zeros(20_000, 2))), 1)
    correlation = torch.corrcoef(together.T)
    off = correlation[~torch.eye(34, dtype=torch.bool)] * math.sqrt(20_000)
    assert off.abs().max() < 4.5  # 561 z-scores, chance 4e-3 at 4.5


# Text

positive = st.floats(1e-300, 1e300, exclude_min=True)
per = st.sampled_from(["pattern", "layer"])
any_hyperprior = st.one_of(
    st.builds(HalfNormal, positive, per),
    st.builds(HalfCauchy, positive, per),
    st.builds(InverseGamma, positive, positive, st.sampled_from(["variance", "scale"]), per),
    st.builds(Learned, per),
)
finite = st.floats(-1e300, 1e300)
any_prior = st.one_of(
    *(st.builds(kind, any_hyperprior, finite) for kind in (Normal, Laplace, Cauchy)),
    st.builds(StudentT, positive, any_hyperprior, finite),
)


@given(st.dictionaries(st.from_regex(r"[a-z*?.\[\]0-9_]{1,9}", fullmatch=True), any_prior, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_text_round_trips_exactly(mapping):
    assert list(priors.parse_mapping(priors.mapping_text(mapping)).items()) == list(mapping.items())
    for prior in mapping.values():
        assert priors.parse(prior.text) == prior
        assert eval(repr(prior)) == prior


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("laplace:inverse-gamma(1,1)", Laplace(InverseGamma(1, 1))),
        ("cauchy:half-cauchy(1)", Cauchy(HalfCauchy(1))),
        ("normal:learned", Normal(Learned())),
        ("normal:learned,0.5", Normal(Learned(), 0.5)),
        ("normal:learned(layer)", Normal(Learned(per="layer"))),
        ("student-t:3,half-normal(0.1,layer),-1", StudentT(3, HalfNormal(0.1, per="layer"), -1)),
        ("normal:inverse-gamma(1,2,scale,layer)", Normal(InverseGamma(1, 2, on="scale", per="layer"))),
        (" Normal : Half_Cauchy( 1 , Layer ) , 2 ", Normal(HalfCauchy(1, per="layer"), 2)),
        ("normal:half-cauchy", Normal(HalfCauchy())),
    ],
)
def test_text_says_what_the_manual_says(text, prior):
    assert priors.parse(text) == prior


def test_text_is_short():
    assert Normal(HalfCauchy(1)).text == "normal:half-cauchy(1)"
    assert Laplace(InverseGamma(1, 0.5), 2).text == "laplace:inverse-gamma(1,0.5),2"
    assert Normal(Learned("layer")).text == "normal:learned(layer)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HalfNormal(0), "scale must be above zero, got 0"),
        (lambda: HalfCauchy(math.inf), "scale must be a finite number, got inf"),
        (lambda: InverseGamma(1, -1), "b must be above zero, got -1"),
        (lambda: InverseGamma(1, 1, on="std"), "unknown on 'std'; known: variance, scale"),
        (lambda: Learned(per="layers"), "unknown per 'layers'; did you mean 'layer'"),
        (lambda: Normal(HalfNormal(1)).log_density(torch.ones(1)), "scale of .* is a variable: pass the scale"),
        (lambda: Normal(HalfNormal(1)).scale_for(3), "is a variable and has no fixed value"),
    ],
)
def test_what_is_no_hyperprior_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Scale variables of a bound prior


@pytest.mark.parametrize(
    ("prior", "random", "learned", "names"),
    [
        ("normal:1", 0, 0, []),
        ("normal:half-cauchy(1)", 1, 0, ["scale[*]"]),
        ("normal:half-cauchy(1,layer)", 2, 0, ["scale[*, hidden]", "scale[*, out]"]),
        ("normal:learned", 0, 1, ["scale[*]"]),
        ("*.bias=normal:10;*=normal:half-normal(1)", 1, 0, ["scale[*]"]),
        ("*.bias=normal:half-normal(1);*=normal:half-normal(1)", 2, 0, ["scale[*.bias]", "scale[*]"]),
        (
            "*.bias=normal:learned;*=laplace:inverse-gamma(1,1,layer)",
            2,
            1,
            ["scale[*, hidden]", "scale[*, out]", "scale[*.bias]"],
        ),
    ],
)
def test_variables_are_counted_per_pattern_or_per_layer(prior, random, learned, names):
    bound = WeightPrior(prior, LAYERS)
    assert (bound.n_random_scales, bound.n_learned_scales) == (random, learned)
    assert bound.scale_names == names
    assert bound.initial_log_scales().shape == (random + learned,)
    assert bound.spec() == prior
    assert not bound.state_dict()


HIERARCHICAL = [
    "normal:half-cauchy(1),0.3",
    "*.bias=normal:10;*=laplace:inverse-gamma(2,1,layer),-0.2",
    "hidden.*=cauchy:half-normal(0.5,layer);out.weight=student-t:3,learned;*=normal:fan_in",
    "*.bias=student-t:3,inverse-gamma(1,1,scale),1;*=normal:learned(layer)",
]


def scipy_log_density(bound: WeightPrior, theta: np.ndarray, log_scales: np.ndarray) -> float:
    total = 0.0
    for weight in bound.weights:
        prior = bound.assignments[weight.name]
        own = [i for i, variable in enumerate(bound.scale_variables) if weight.name in variable.tensors]
        scale = math.exp(log_scales[own[0]]) if own else prior.scale_for(weight.fan_in)
        named = {"normal": stats.norm, "laplace": stats.laplace, "cauchy": stats.cauchy}
        density = stats.t(prior.df, prior.mean, scale) if prior.name == "student-t" else None
        density = named[prior.name](prior.mean, scale) if density is None else density
        total += density.logpdf(theta[weight.start : weight.start + weight.size]).sum()
    return total


@pytest.mark.parametrize("prior", HIERARCHICAL)
def test_densities_given_the_scales_agree_with_scipy(prior):
    bound = WeightPrior(prior, LAYERS).double()
    generator = torch.Generator().manual_seed(3)
    count = len(bound.scale_variables)
    theta = torch.randn(2, 3, 32, generator=generator, dtype=torch.float64)
    log_scales = 1.5 * torch.randn(2, 3, count, generator=generator, dtype=torch.float64)
    found = bound.log_density(theta, log_scales)
    of_scales = bound.log_density_of_scales(log_scales)
    for index in np.ndindex(2, 3):
        expected = scipy_log_density(bound, theta[index].numpy(), log_scales[index].numpy())
        assert found[index].item() == pytest.approx(expected, rel=1e-10)
        random = bound.scale_variables[: bound.n_random_scales]
        parts = [v.hyperprior.log_density(u).item() for v, u in zip(random, log_scales[index], strict=False)]
        assert of_scales[index].item() == pytest.approx(sum(parts), rel=1e-10, abs=1e-12)
    kept = torch.arange(32) % 3 > 0
    torch.testing.assert_close(
        bound.log_density(theta, log_scales, kept) + bound.log_density(theta, log_scales, ~kept), found
    )


@pytest.mark.parametrize("prior", HIERARCHICAL)
def test_non_centred_coordinates_are_a_change_of_variables(prior):
    bound = WeightPrior(prior, LAYERS).double()
    generator = torch.Generator().manual_seed(4)
    raw = torch.randn(32, generator=generator, dtype=torch.float64)
    log_scales = torch.randn(len(bound.scale_variables), generator=generator, dtype=torch.float64)

    def whole(raw, log_scales):
        return torch.cat((bound.centred(raw, log_scales), log_scales))

    rows = torch.autograd.functional.jacobian(whole, (raw, log_scales))
    log_jacobian = torch.linalg.slogdet(torch.cat(rows, 1))[1]
    weights = bound.centred(raw, log_scales)
    joint = bound.log_density(weights, log_scales) + bound.log_density_of_scales(log_scales)
    torch.testing.assert_close(bound.log_density_raw(raw, log_scales), joint + log_jacobian, rtol=1e-11, atol=1e-11)
    rows = torch.stack((raw, -raw)), torch.stack((log_scales, 2 * log_scales))
    one_by_one = [bound.log_density_raw(r, u) for r, u in zip(*rows, strict=True)]
    torch.testing.assert_close(bound.log_density_raw(*rows), torch.stack(one_by_one))
    torch.testing.assert_close(torch.vmap(bound.log_density_raw)(*rows), torch.stack(one_by_one))


@pytest.mark.parametrize("prior", HIERARCHICAL)
def test_the_divergence_is_averaged_over_draws_of_the_scales(prior):
    bound = WeightPrior(prior, LAYERS).double()
    generator = torch.Generator().manual_seed(5)
    mean, rho = torch.randn(2, 32, generator=generator, dtype=torch.float64)
    std = rho.exp()
    draws = mean + std * torch.randn(6, 32, generator=generator, dtype=torch.float64)
    log_scales = torch.randn(6, len(bound.scale_variables), generator=generator, dtype=torch.float64)
    one_by_one = [bound.kl(mean, std, w[None], None, u) for w, u in zip(draws, log_scales, strict=True)]
    torch.testing.assert_close(bound.kl(mean, std, draws, None, log_scales), torch.stack(one_by_one).mean())
    # With the scales as plain numbers it is the divergence of a plain prior.
    fixed = {}
    for weight in LAYERS:
        own = [i for i, variable in enumerate(bound.scale_variables) if weight.name in variable.tensors]
        kind = bound.assignments[weight.name]
        fixed[weight.name] = type(kind)(
            **{**kind.__dict__, **({"scale": log_scales[0, own[0]].exp().item()} if own else {})}
        )
    plain = WeightPrior(fixed, LAYERS).double().kl(mean, std, draws[:1])
    torch.testing.assert_close(one_by_one[0], plain)


def test_draws_of_weights_spread_as_far_as_their_scales_say():
    bound = WeightPrior("hidden.*=normal:half-normal(1,layer);*=laplace:half-normal(1),2", LAYERS).double()
    keys = noise.keys(8, 1, draws=range(20_000))
    draws, scales = bound.sample(keys), bound.sample_scales(keys)
    tau = scales.exp()
    standardised = torch.cat((draws[:, :20] / tau[:, :1], (draws[:, 20:] - 2) / tau[:, 1:]), 1)
    variance = torch.tensor([1.0] * 20 + [2.0] * 12).double()
    kurtosis = torch.tensor([3.0] * 20 + [6.0] * 12).double()
    z = (standardised.square().mean(0) / variance - 1) * torch.sqrt(20_000 / (kurtosis - 1))
    assert z.abs().max() < 4.5  # 32 z-scores, chance 2e-4
    torch.testing.assert_close(
        bound.centred(
            (draws - bound.centred(torch.zeros_like(draws), scales))
            / torch.cat((tau[:, :1].expand(-1, 20), tau[:, 1:].expand(-1, 12)), 1),
            scales,
        ),
        draws,
    )
    given_scales = bound.sample(keys, torch.zeros(20_000, 2, dtype=torch.float64))
    torch.testing.assert_close(given_scales[:, :20], standardised[:, :20])
    with pytest.raises(ValueError, match="learned scale has no prior and cannot be sampled: pass log_scales"):
        WeightPrior("normal:learned", LAYERS).sample(keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scales_stay_finite(dtype):
    for text in ("normal:half-cauchy(1)", "laplace:half-cauchy(1)", "cauchy:half-cauchy(1)"):
        bound = WeightPrior(text, LAYERS).to(dtype)
        for u in (-15.0, 30.0):
            log_scales = torch.full((1, 1), u, dtype=dtype, requires_grad=True)
            mean, std = torch.full((32,), 0.1, dtype=dtype), torch.full((32,), 0.01, dtype=dtype)
            value = bound.kl(mean, std, mean[None], None, log_scales) - bound.log_density_of_scales(log_scales).mean()
            assert value.isfinite()
            assert torch.autograd.grad(value, log_scales)[0].isfinite().all()


def test_scales_that_are_missing_or_of_the_wrong_number_are_refused():
    bound = WeightPrior("normal:half-cauchy(1,layer)", LAYERS)
    theta = torch.zeros(32)
    for call in (lambda: bound.log_density(theta), lambda: bound.kl(theta, theta + 1)):
        with pytest.raises(ValueError, match=r"is a variable: pass log_scales \[..., 2\]"):
            call()
    for call in (bound.log_density, bound.centred, bound.log_density_raw):
        with pytest.raises(ValueError, match=r"expected log_scales \[..., 2\], got shape \[3\]"):
            call(theta, torch.zeros(3))
    assert bound.describe("out.bias") == "normal:half-cauchy(1,layer) (scale[*, out])"


@pytest.mark.parametrize("prior", ["normal:half-cauchy(1)", "*.bias=normal:1;*=normal:learned"])
@pytest.mark.parametrize("method", [bf.PointEstimate, bf.Ensemble, bf.MCDropout])
def test_methods_that_do_not_infer_scales_refuse_them(method, prior):
    network = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1), nn.Linear(3, 1))
    with pytest.raises(ValueError, match=r"(does not infer scales|cannot learn a scale), normal:.* on '0.weight': use"):
        method(network, "gaussian", prior=prior)
