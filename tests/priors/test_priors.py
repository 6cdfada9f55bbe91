"""Priors: their text, their validation, and their binding to a network's flat vector."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bayesify import noise, priors
from bayesify.priors import (
    Cauchy,
    Flat,
    Laplace,
    LogUniform,
    Normal,
    Prior,
    ScaleMixture,
    StudentT,
    Weight,
    WeightPrior,
)

EXAMPLES = [
    Normal(0.5),
    Laplace(0.1, 0.2),
    Cauchy(2),
    StudentT(4, 0.3),
    ScaleMixture(0.75, 1, 0.000335),
    Flat(),
    LogUniform(),
]

LAYERS = [
    Weight("hidden.weight", (5, 3), 0, 3),
    Weight("hidden.bias", (5,), 15, 3),
    Weight("out.weight", (2, 5), 20, 5),
    Weight("out.bias", (2,), 30, 5),
]

positive = st.floats(1e-300, 1e300, exclude_min=True)
finite = st.floats(-1e300, 1e300)
scales = st.one_of(positive, st.just("fan_in"))
any_prior = st.one_of(
    st.builds(Normal, scales, finite),
    st.builds(Laplace, scales, finite),
    st.builds(Cauchy, scales, finite),
    st.builds(StudentT, positive, scales, finite),
    st.builds(ScaleMixture, st.floats(0, 1, exclude_min=True, exclude_max=True), positive, positive, finite),
    st.just(Flat()),
    st.just(LogUniform()),
)


# Text


@given(any_prior)
@settings(max_examples=300, deadline=None)
def test_text_round_trips_exactly(prior):
    assert priors.parse(prior.text) == prior
    assert str(prior) == prior.text
    assert eval(repr(prior)) == prior


@given(st.dictionaries(st.from_regex(r"[a-z*?.\[\]0-9_]{1,12}", fullmatch=True), any_prior, min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_mapping_text_round_trips_in_order(mapping):
    again = priors.parse_mapping(priors.mapping_text(mapping))
    assert list(again.items()) == list(mapping.items())


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("normal:1", Normal(1.0)),
        ("normal:1,0.5", Normal(1.0, 0.5)),
        ("normal", Normal()),
        ("normal:fan_in", Normal("fan_in")),
        ("laplace:0.1", Laplace(0.1)),
        ("cauchy:1", Cauchy(1.0)),
        ("student-t:3,1", StudentT(3.0, 1.0)),
        ("student-t:5,fan_in,-1", StudentT(5.0, "fan_in", -1.0)),
        ("scale-mixture:0.75,1,0.000335", ScaleMixture(0.75, 1.0, 0.000335)),
        ("scale-mixture:0.75,1,0.000335,2", ScaleMixture(0.75, 1.0, 0.000335, 2.0)),
        ("flat", Flat()),
        ("log-uniform", LogUniform()),
        (" Scale_Mixture: 0.5, 1e0 , 1e-3 ", ScaleMixture(0.5, 1.0, 0.001)),
    ],
)
def test_text_says_what_the_manual_says(text, prior):
    assert priors.parse(text) == prior


def test_text_is_short():
    written = [prior.text for prior in EXAMPLES]
    assert written[:4] == ["normal:0.5", "laplace:0.1,0.2", "cauchy:2", "student-t:4,0.3"]
    assert written[4:] == ["scale-mixture:0.75,1,0.000335", "flat", "log-uniform"]
    assert repr(Normal(1)) == "Normal(scale=1.0, mean=0.0)"


def test_mapping_text_keeps_the_order_of_the_patterns():
    mapping = priors.parse_mapping(" *.bias = normal:10 ; * = normal:1 ")
    assert list(mapping.items()) == [("*.bias", Normal(10.0)), ("*", Normal(1.0))]
    assert priors.mapping_text(mapping) == "*.bias=normal:10;*=normal:1"
    assert priors.parse_mapping("flat") == {"*": Flat()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nromal:1", "unknown prior 'nromal:1'; did you mean 'normal'?"),
        ("student:3", "did you mean 'student-t'?"),
        ("", "unknown prior ''; known: normal, laplace"),
        ("zzz", "known: normal"),
        ("normal:", "'normal:' does not have the form normal:scale,mean"),
        ("normal:1,2,3", "does not have the form normal:scale,mean"),
        ("normal:1,", "does not have the form"),
        ("scale-mixture", "does not have the form scale-mixture:pi,sigma1,sigma2"),
        ("scale-mixture:0.5,1", "does not have the form scale-mixture:pi,sigma1,sigma2"),
        ("flat:1", "'flat:1' does not have the form flat$"),
        ("normal:wide", "scale in prior 'normal:wide' must be a number, fan_in or a hyperprior such as .*, got 'wide'"),
        ("normal:1,fan_in", "mean in prior 'normal:1,fan_in' must be a number, got 'fan_in'"),
        ("normal:0", "scale must be above zero, got 0.0"),
        ("normal:-1", "scale must be above zero, got -1.0, in prior 'normal:-1'"),
        ("normal:nan", "scale must be a finite number, got nan"),
        ("normal:inf", "scale must be a finite number, got inf"),
        ("normal:half-couchy(1)", "unknown hyperprior 'half-couchy.1.' in prior .*; did you mean 'half-cauchy'"),
        ("normal:lerned", "scale in prior 'normal:lerned' must be a number, fan_in or a hyperprior"),
        ("normal:half-normal(0)", "scale must be above zero, got 0.0"),
        ("normal:half-normal(1,2)", r"'half-normal\(1,2\)' does not have the form half-normal\(scale\)"),
        ("normal:half-normal(1", r"does not have the form half-normal\(scale\)"),
        ("normal:half-normal(one)", r"scale in hyperprior 'half-normal\(one\)' must be a number, got 'one'"),
        (
            "normal:inverse-gamma(1,1,1)",
            r"does not have the form inverse-gamma\(a,b\), optionally with scale,layer at its end",
        ),
        ("normal:inverse-gamma(1,-1)", "b must be above zero, got -1.0"),
        ("normal:learned(1)", "'learned.1.' does not have the form learned, optionally with layer at its end"),
        ("normal:1,half-normal(1)", "mean in prior .* must be a number, got 'half-normal"),
        ("scale-mixture:0.5,1,learned", "sigma2 in prior .* must be a number, got 'learned'"),
        ("*.bias=normal:1;normal:2", "expected pattern=prior"),
        ("=normal:1", "expected pattern=prior"),
        ("*=normal:1;*=normal:2", r"pattern '\*' is given twice"),
        ("*=nromal:1", "did you mean 'normal'"),
    ],
)
def test_a_mistake_in_the_text_gets_one_clear_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        priors.parse_mapping(text)
    assert "\n" not in str(error.value)


def test_only_strings_are_text():
    with pytest.raises(TypeError, match="must be a string such as 'normal:1', got 3"):
        priors.parse(3)
    for pattern in ("a=b", "a;b", " a", ""):
        with pytest.raises(ValueError, match="name pattern must not contain '='"):
            priors.mapping_text({pattern: Flat()})


# Validation


@pytest.mark.parametrize("kind", [Normal, Laplace, Cauchy, lambda scale: StudentT(3.0, scale)])
@pytest.mark.parametrize("scale", [0, 0.0, -1, -1e-9, math.nan, math.inf, "fanin", "1"])
def test_a_scale_is_positive_and_finite(kind, scale):
    with pytest.raises(ValueError, match=r"^scale must be .*got "):
        kind(scale)


@pytest.mark.parametrize("bad", [None, True, [1.0], torch.ones(2)])
def test_a_scale_is_a_number(bad):
    with pytest.raises(TypeError, match=r"^scale must be a number, got "):
        Normal(bad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScaleMixture(0.0, 1, 1), "pi must lie strictly between 0 and 1, got 0.0"),
        (lambda: ScaleMixture(1.0, 1, 1), "pi must lie strictly between 0 and 1, got 1.0"),
        (lambda: ScaleMixture(1.5, 1, 1), "pi must lie strictly between 0 and 1, got 1.5"),
        (lambda: ScaleMixture(math.nan, 1, 1), "pi must be a finite number"),
        (lambda: ScaleMixture(0.5, 0, 1), "sigma1 must be above zero, got 0"),
        (lambda: ScaleMixture(0.5, 1, -2), "sigma2 must be above zero, got -2"),
        (lambda: ScaleMixture(0.5, 1, 1, math.inf), "mean must be a finite number"),
        (lambda: StudentT(0), "df must be above zero, got 0"),
        (lambda: StudentT(math.nan), "df must be a finite number, got nan"),
        (lambda: Normal(1, math.nan), "mean must be a finite number, got nan"),
    ],
)
def test_a_prior_that_is_no_density_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_priors_are_frozen_values():
    assert Normal(1) == Normal(np.float32(1.0))
    assert len({Normal(1), Normal(1.0), Laplace(1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Normal().scale = 2.0


def test_each_prior_says_whether_it_is_proper_and_has_a_closed_kl():
    one = torch.ones(1)
    assert {prior.name: (prior.proper, prior.closed_kl(one, one) is not None) for prior in EXAMPLES} == {
        "normal": (True, True),
        "laplace": (True, True),
        "cauchy": (True, False),
        "student-t": (True, False),
        "scale-mixture": (True, False),
        "flat": (False, True),
        "log-uniform": (False, True),
    }
    for prior in EXAMPLES:
        assert (prior.approximate is None) == (prior.name in ("normal", "laplace"))


@pytest.mark.parametrize("prior", [Flat(), LogUniform()], ids=str)
def test_an_improper_prior_cannot_be_sampled(prior):
    with pytest.raises(ValueError, match=f"a {prior.name} prior is improper and cannot be sampled"):
        prior.sample(noise.keys(0, 1), 3)


def test_a_fan_in_scale_needs_a_tensor():
    with pytest.raises(ValueError, match="normal:fan_in takes its scale from a tensor's fan-in: pass the scale"):
        Normal("fan_in").log_density(torch.ones(1))
    assert Normal("fan_in").scale_for(16) == 0.25
    assert Normal(3.0).scale_for(16) == 3.0


# Fan-in


def test_fan_in_counts_the_inputs_of_one_output():
    network = nn.ModuleDict(
        {
            "linear": nn.Linear(7, 3),
            "conv": nn.Conv2d(6, 4, (3, 5), groups=2),
            "transposed": nn.ConvTranspose2d(6, 4, (3, 5), groups=2),
            "norm": nn.LayerNorm(9),
            "lstm": nn.LSTM(5, 8),
            "attention": nn.MultiheadAttention(12, 3),
        }
    )
    network.register_parameter("alone", nn.Parameter(torch.ones(4)))
    expected = {
        "linear.weight": 7,
        "linear.bias": 7,
        "conv.weight": 3 * 15,
        "conv.bias": 3 * 15,
        "transposed.weight": 3 * 15,
        "transposed.bias": 3 * 15,
        "norm.weight": 1,
        "norm.bias": 1,
        "lstm.weight_ih_l0": 5,
        "lstm.bias_ih_l0": 5,
        "lstm.bias_hh_l0": 8,
        "attention.in_proj_bias": 12,
        "attention.out_proj.bias": 12,
        "alone": 1,
    }
    assert {name: priors.fan_in(network, name) for name in expected} == expected


def test_a_fan_in_prior_keeps_the_size_of_outputs_for_transposed_convolutions():
    # With unit inputs and weights of scale fan_in^-1/2 every interior output has variance one.
    layer = nn.ConvTranspose1d(10, 4, 5, bias=False, groups=2)
    bound = WeightPrior(
        "normal:fan_in", [Weight("weight", tuple(layer.weight.shape), 0, priors.fan_in(layer, "weight"))]
    )
    draws = bound.sample(noise.keys(1, 1, draws=range(4000))).reshape(-1, *layer.weight.shape)
    outputs = torch.stack([nn.functional.conv_transpose1d(torch.ones(1, 10, 9), w, groups=2)[0, :, 4:9] for w in draws])
    variance = outputs.var(0).mean(-1)
    assert (variance - 1).abs().max() < 4 * math.sqrt(2 / 4000)  # four z-scores


# Binding


def naive_log_density(assignments: dict[str, Prior], weights: list[Weight], theta: torch.Tensor) -> torch.Tensor:
    return sum(
        assignments[w.name]
        .log_density(theta[..., w.start : w.start + w.size], assignments[w.name].scale_for(w.fan_in))
        .sum(-1)
        for w in weights
    )


def naive_kl(assignments, weights, mean, std, draws):
    total = torch.zeros((), dtype=torch.float64)
    for w in weights:
        prior, part = assignments[w.name], slice(w.start, w.start + w.size)
        closed = prior.closed_kl(mean[part], std[part], prior.scale_for(w.fan_in))
        if closed is None:
            log_q = -torch.log(std[part]) - 0.5 * math.log(2 * math.pi * math.e)
            log_p = prior.log_density(draws[:, part], prior.scale_for(w.fan_in)).mean(0)
            closed = log_q - log_p
        total = total + closed.sum()
    return total


PRIORS = [
    "normal:1",
    "normal:0.3,0.1",
    "normal:fan_in",
    "*.bias=normal:10;*=normal:1",
    "*.bias=normal:1,3;*=normal:1",
    "*.bias=flat;*=laplace:fan_in",
    "hidden.*=cauchy:0.5;out.weight=student-t:3,fan_in;*=student-t:3,2,1",
    "*.bias=log-uniform;hidden*=scale-mixture:0.75,1,0.01;*=scale-mixture:0.25,1,0.01",
]


@pytest.mark.parametrize("prior", PRIORS)
def test_binding_equals_a_loop_over_tensors(prior):
    bound = WeightPrior(prior, LAYERS).double()
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(4, 6, 32, generator=generator, dtype=torch.float64)
    mean, std = theta[0, 0], theta[1, 0].exp()
    draws = mean + std * theta[2]
    log_density, kl = bound.log_density(theta), bound.kl(mean, std, draws)
    assert log_density.shape == (4, 6)
    assert kl.shape == ()
    expected = naive_log_density(bound.assignments, LAYERS, theta)
    np.testing.assert_allclose(log_density.numpy(), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(kl.item(), naive_kl(bound.assignments, LAYERS, mean, std, draws).item(), rtol=1e-12)


@given(
    st.lists(
        st.sampled_from([*EXAMPLES, Normal("fan_in"), Normal(0.5, 2.0), Laplace("fan_in")]),
        min_size=1,
        max_size=7,
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_assignment_equals_a_loop_over_tensors(chosen, data):
    weights, start = [], 0
    for index in range(len(chosen)):
        size = data.draw(st.integers(1, 4))
        weights.append(Weight(f"t{index}", (size,), start, data.draw(st.integers(1, 9))))
        start += size
    bound = WeightPrior({f"t{index}": prior for index, prior in enumerate(chosen)}, weights[::-1]).double()
    theta = torch.linspace(-2.1, 1.9, 3 * start, dtype=torch.float64).reshape(3, start)
    expected = naive_log_density(bound.assignments, weights, theta)
    np.testing.assert_allclose(bound.log_density(theta).numpy(), expected.numpy(), rtol=1e-10)
    mean, std = theta[0], theta[1].exp()
    expected = naive_kl(bound.assignments, weights, mean, std, theta)
    np.testing.assert_allclose(bound.kl(mean, std, theta).item(), expected.item(), rtol=1e-10)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_divergence_of_kept_weights_leaves_out_the_others(prior):
    bound = WeightPrior(prior, LAYERS).double()
    theta = torch.linspace(-1, 2, 160, dtype=torch.float64).reshape(5, 32)
    mean, std = theta[0] + 0.03, theta[1].exp()
    kept = torch.arange(32) % 3 > 0
    whole = bound.kl(mean, std, theta)
    parts = bound.kl(mean, std, theta, kept), bound.kl(mean, std, theta, ~kept)
    torch.testing.assert_close(parts[0] + parts[1], whole)
    changed = torch.where(kept, std, 2 * std), torch.where(kept, theta, theta + 1)
    torch.testing.assert_close(bound.kl(mean, *changed, kept), parts[0])


def test_the_first_matching_pattern_wins():
    bound = WeightPrior({"out.*": "normal:1", "*.bias": Laplace(2.0), "*": "cauchy:1"}, LAYERS)
    assert {name: prior.text for name, prior in bound.assignments.items()} == {
        "hidden.weight": "cauchy:1",
        "hidden.bias": "laplace:2",
        "out.weight": "normal:1",
        "out.bias": "normal:1",
    }


def test_one_prior_is_one_expression_without_copies():
    # No slicing, no gathering and no per-weight numbers for a scalar scale; one buffer for scales that vary.
    single = WeightPrior("normal:0.5", LAYERS)
    assert len(single.groups) == 1
    assert single.groups[0].pick(theta := torch.ones(32)) is theta
    assert all(buffer.numel() == 0 for buffer in single.buffers())
    varying = WeightPrior("*.bias=normal:10;*=normal:1", LAYERS)
    assert len(varying.groups) == 1
    assert varying.groups[0].pick(theta) is theta
    assert not varying.state_dict()


@pytest.mark.parametrize(
    ("prior", "proper", "needs_draws"),
    [
        ("normal:1", True, False),
        ("laplace:1", True, False),
        ("flat", False, False),
        ("log-uniform", False, False),
        ("cauchy:1", True, True),
        ("*.bias=scale-mixture:0.5,1,0.1;*=normal:1", True, True),
        ("*.bias=flat;*=student-t:3,1", False, True),
    ],
)
def test_a_bound_prior_asks_for_draws_where_a_part_has_no_closed_form(prior, proper, needs_draws):
    bound = WeightPrior(prior, LAYERS)
    assert bound.proper == proper
    if needs_draws:
        with pytest.raises(ValueError, match=r"has no closed form: pass draws \[draws, 32\]"):
            bound.kl(torch.zeros(32), torch.ones(32))
    else:
        assert bound.kl(torch.zeros(32), torch.ones(32)).isfinite()


def test_moving_to_float64_gives_float64_digits():
    bound = WeightPrior("normal:fan_in", LAYERS)
    assert bound.log_density(torch.ones(32)).dtype == torch.float32
    theta = torch.ones(32, dtype=torch.float64)
    exact = naive_log_density(bound.assignments, LAYERS, theta)
    assert bound.double().log_density(theta).item() == pytest.approx(exact.item(), rel=1e-14)
    assert bound.float().log_density(torch.ones(32)).dtype == torch.float32


@pytest.mark.parametrize("prior", PRIORS)
def test_a_spec_restores_the_same_prior(prior):
    bound = WeightPrior(prior, LAYERS)
    again = WeightPrior.from_spec(bound.spec(), LAYERS)
    assert again.spec() == bound.spec() == prior
    assert again.assignments == bound.assignments


def test_a_summary_names_scales_and_approximations():
    bound = WeightPrior({"hidden.*": "normal:fan_in", "out.weight": "log-uniform", "*": "normal:1,2"}, LAYERS)
    assert bound.describe("hidden.bias") == "normal:fan_in (scale 0.5774)"
    assert bound.describe("out.bias") == "normal:1,2"
    assert bound.describe("out.weight").startswith("log-uniform (improper: KL up to a constant, by the approximation")
    with pytest.raises(ValueError, match=r"unknown random weight 'hiden.bias'; did you mean 'hidden.bias'"):
        bound.describe("hiden.bias")


def test_prior_draws_have_the_assigned_scales_and_do_not_depend_on_their_company():
    bound = WeightPrior("*.bias=normal:10,1;out.*=laplace:0.1;*=normal:fan_in", LAYERS)
    keys = noise.keys(2, 1, draws=range(20_000))
    draws = bound.sample(keys)
    assert draws.shape == (20_000, 32)
    scale = torch.tensor([3**-0.5] * 15 + [10.0] * 5 + [0.1 * 2**0.5] * 10 + [10.0] * 2)
    mean = torch.tensor([0.0] * 15 + [1.0] * 5 + [0.0] * 10 + [1.0] * 2)
    z = (draws.mean(0) - mean) / scale * math.sqrt(20_000)
    assert z.abs().max() < 4.5  # 32 z-scores, chance 2e-4
    kurtosis = torch.tensor([3.0] * 20 + [6.0] * 10 + [3.0] * 2)
    z = ((draws - mean).square().mean(0) / scale.square() - 1) * torch.sqrt(20_000 / (kurtosis - 1))
    assert z.abs().max() < 4.5
    assert torch.equal(bound.sample(keys[7]), draws[7])
    with pytest.raises(ValueError, match="flat prior is improper"):
        WeightPrior("*.bias=flat;*=normal:1", LAYERS).sample(keys)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (
            {"hiden.*": "normal:1", "*": "flat"},
            ValueError,
            r"pattern 'hiden\.\*' matches no random weight; did you mean 'hidden",
        ),
        (
            {"*.bias": "normal:1"},
            ValueError,
            r"no prior pattern matches the weight 'hidden.weight': add '\*'",
        ),
        ({"*.BIAS": "normal:1", "*": "flat"}, ValueError, "matches no random weight"),
        ({}, ValueError, "mapping of priors is empty"),
        ({"*": 1.0}, TypeError, r"the prior for '\*' must be a prior or its text, got 1.0"),
        (
            1.0,
            TypeError,
            "prior must be a prior, its text or a mapping from name patterns to priors, got 1.0",
        ),
        (Normal, TypeError, "prior must be a prior"),
        ("nromal:1", ValueError, "did you mean 'normal'"),
    ],
)
def test_an_assignment_that_cannot_be_meant_is_refused(prior, error, message):
    with pytest.raises(error, match=message):
        WeightPrior(prior, LAYERS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "the network has no random weights"),
        ([Weight("a", (2,), 1, 1)], "'a' starts at 1, not 0"),
        ([Weight("a", (2,), 0, 1), Weight("b", (2,), 1, 1)], "'b' starts at 1, not 2"),
        ([Weight("a", (2,), 0, 1), Weight("a", (2,), 2, 1)], "names of random weights must differ, got 'a' twice"),
        ([Weight("a", (2,), 0, 0)], "fan-in of 'a' must be at least 1, got 0"),
    ],
)
def test_weights_tile_the_vector(weights, message):
    with pytest.raises(ValueError, match=message):
        WeightPrior("normal:1", weights)


def test_a_vector_of_the_wrong_size_is_refused():
    bound = WeightPrior("cauchy:1", LAYERS)
    right, wrong = torch.ones(32), torch.ones(31)
    for call in (
        lambda: bound.log_density(wrong),
        lambda: bound.log_density(torch.ones(())),
        lambda: bound.kl(wrong, right, right[None]),
        lambda: bound.kl(right, wrong, right[None]),
        lambda: bound.kl(right, right, wrong[None]),
    ):
        with pytest.raises(ValueError, match=r"expected weight vectors \[..., 32\], got shape \["):
            call()


@pytest.mark.parametrize("prior", ["normal:fan_in", PRIORS[-1], PRIORS[-2]])
def test_a_bound_prior_compiles_whole_and_vectorises(prior):
    bound = WeightPrior(prior, LAYERS)
    generator = torch.Generator().manual_seed(2)
    mean = torch.randn(32, generator=generator).requires_grad_()
    rho = torch.randn(32, generator=generator).requires_grad_()
    noises = torch.randn(5, 32, generator=generator)

    def objective(mean, rho):
        std = nn.functional.softplus(rho)
        draws = mean + std * noises
        return bound.kl(mean, std, draws) - bound.log_density(draws).mean()

    eager, compiled = (
        objective(mean, rho),
        torch.compile(objective, backend="aot_eager", fullgraph=True)(mean, rho),
    )
    torch.testing.assert_close(compiled, eager)
    for ours, expected in zip(
        torch.autograd.grad(compiled, (mean, rho)), torch.autograd.grad(eager, (mean, rho)), strict=True
    ):
        torch.testing.assert_close(ours, expected)
    rows = torch.vmap(bound.log_density)(noises)
    torch.testing.assert_close(rows, bound.log_density(noises))
