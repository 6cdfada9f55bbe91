"""Likelihoods against scipy and quadrature: the numbers, the shapes they refuse, and what they say then."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch.nn import functional

from bayesify import likelihoods, noise
from bayesify.likelihoods import Bernoulli, Categorical, Gaussian, GaussianLogits, Poisson, sampled_logits

DRAWS, BATCH, CLASSES = 3, 5, 4


def random(*shape, seed=0, scale=2.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_categorical_log_prob_is_the_log_softmax_of_the_label():
    outputs, labels = random(DRAWS, BATCH, CLASSES), torch.tensor([0, 3, 1, 1, 2])
    expected = outputs.numpy() - special.logsumexp(outputs.numpy(), axis=-1, keepdims=True)
    answer = Categorical().log_prob(outputs, labels)
    np.testing.assert_allclose(answer, expected[:, np.arange(BATCH), labels], rtol=1e-12)
    np.testing.assert_allclose(Categorical().log_density(outputs, labels), answer, rtol=1e-12)
    np.testing.assert_allclose(Categorical().probs(outputs), np.exp(expected), rtol=1e-12)


def test_categorical_sums_over_pixels_and_over_tokens():
    labels = torch.tensor([[0, 1, 3], [2, 2, 0]])
    tokens = random(DRAWS, 2, 3, CLASSES)
    expected = functional.log_softmax(tokens, -1).gather(-1, labels.expand(DRAWS, 2, 3)[..., None]).sum((-1, -2))
    by_token = Categorical(class_dim=-1)
    torch.testing.assert_close(by_token.log_prob(tokens, labels), expected)
    channels_first = tokens.movedim(-1, 2)
    torch.testing.assert_close(Categorical().log_prob(channels_first, labels), expected)
    by_channel = Categorical(class_dim=1)
    torch.testing.assert_close(by_channel.probs(channels_first), by_token.probs(tokens))
    assert by_channel.probs(channels_first).shape == (DRAWS, 2, 3, CLASSES)


def test_class_weights_multiply_the_training_term_and_leave_the_score_alone():
    outputs, labels = random(DRAWS, BATCH, CLASSES), torch.tensor([0, 3, 1, 1, 2])
    weights = torch.tensor([1.0, 5.0, 0.0, 2.0], dtype=torch.float64)
    plain, weighted = Categorical(), Categorical(class_weights=weights)
    torch.testing.assert_close(weighted.log_prob(outputs, labels), plain.log_prob(outputs, labels) * weights[labels])
    torch.testing.assert_close(weighted.log_density(outputs, labels), plain.log_prob(outputs, labels))
    torch.testing.assert_close(weighted.probs(outputs), plain.probs(outputs))
    assert weighted.width(torch.tensor([0, 1])) == 4


@pytest.mark.parametrize("outputs_shape", [(BATCH,), (BATCH, 1)])
@pytest.mark.parametrize("targets_shape", [(BATCH,), (BATCH, 1)])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(0.7), Poisson()])
def test_one_number_per_example_never_broadcasts(likelihood, outputs_shape, targets_shape):
    outputs, targets = random(DRAWS, BATCH), torch.tensor([0, 1, 1, 0, 1])
    expected = {
        "bernoulli": stats.bernoulli.logpmf(targets, outputs.sigmoid()),
        "gaussian": stats.norm.logpdf(targets, outputs, 0.7),
        "poisson": stats.poisson.logpmf(targets, outputs.exp()),
    }[likelihood.name]
    shaped = targets.reshape(targets_shape)
    likelihood.check_outputs(outputs[0].reshape(outputs_shape), shaped)
    answer = likelihood.log_prob(outputs.reshape(DRAWS, *outputs_shape), shaped)
    assert answer.shape == (DRAWS, BATCH)
    np.testing.assert_allclose(answer, expected, rtol=1e-10)


def test_bernoulli_gives_two_classes_and_survives_huge_logits():
    logits = torch.tensor([[[-800.0], [800.0], [0.0]]])
    torch.testing.assert_close(Bernoulli().probs(logits), torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]]))
    answer = Bernoulli().log_prob(logits, torch.tensor([1, 1, 0]))
    torch.testing.assert_close(answer, torch.tensor([[-800.0, 0.0, -math.log(2)]]))
    torch.testing.assert_close(Bernoulli().log_density(logits, torch.tensor([1, 1, 0])), answer)
    several = random(DRAWS, BATCH, 3)
    assert Bernoulli().probs(several).shape == (DRAWS, BATCH, 3, 2)
    targets = torch.tensor([[0, 1, 1]] * BATCH)
    expected = stats.bernoulli.logpmf(targets, several.sigmoid()).sum(-1)
    np.testing.assert_allclose(Bernoulli().log_prob(several, targets), expected, rtol=1e-10)


def test_gaussian_sums_over_dimensions_and_reports_its_noise():
    outputs, targets = random(DRAWS, BATCH, 2), random(BATCH, 2, seed=1)
    likelihood = Gaussian(0.3)
    expected = stats.norm.logpdf(targets, outputs, 0.3).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets), expected, rtol=1e-10)
    torch.testing.assert_close(likelihood.mean(outputs), outputs)
    torch.testing.assert_close(likelihood.noise_variance(outputs), torch.full_like(outputs, 0.09))
    assert likelihood.mean(random(DRAWS, BATCH, 1)).shape == (DRAWS, BATCH)


@pytest.mark.parametrize("noise_given", ["learned", "heteroscedastic"])
def test_original_units_shift_the_log_density_by_the_log_of_the_scale(noise_given):
    # The same network on standardised targets: change of variables, p(y) = p(z) / scale.
    location, scale = 300.0, 12.5
    width = 2 if noise_given == "heteroscedastic" else 1
    outputs, raw = random(DRAWS, BATCH, width), location + scale * random(BATCH, seed=1)
    plain = Gaussian(noise_given, initial=0.6).double()
    units = Gaussian(noise_given, initial=0.6, location=location, scale=scale).double()
    standard = plain.log_prob(outputs, (raw - location) / scale)
    torch.testing.assert_close(units.log_prob(outputs, raw), standard - math.log(scale))
    torch.testing.assert_close(units.mean(outputs), location + scale * plain.mean(outputs))
    torch.testing.assert_close(units.noise_variance(outputs), scale**2 * plain.noise_variance(outputs))
    torch.testing.assert_close(units.cdf(outputs, raw), plain.cdf(outputs, (raw - location) / scale))
    levels = torch.rand(BATCH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(units.quantile(outputs, levels), location + scale * plain.quantile(outputs, levels))


@pytest.mark.parametrize("deviation", [np.float32(0.5), torch.tensor(0.5)])
def test_a_noise_may_be_the_standard_deviation_of_an_array(deviation):
    assert json.dumps(Gaussian(deviation).spec()) == json.dumps(Gaussian(0.5).spec())


def test_known_noise_is_in_the_units_of_the_targets():
    outputs, targets = random(DRAWS, BATCH, 2), random(BATCH, 2, seed=1, scale=30.0)
    likelihood = Gaussian(0.7, location=[20.0, -3.0], scale=[4.0, 0.5])
    mean = torch.tensor([20.0, -3.0]) + torch.tensor([4.0, 0.5]) * outputs
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets), stats.norm.logpdf(targets, mean, 0.7).sum(-1))
    torch.testing.assert_close(likelihood.mean(outputs), mean)
    torch.testing.assert_close(likelihood.noise_variance(outputs), torch.full_like(outputs, 0.49))


@pytest.mark.parametrize("noise_given", [0.7, "learned", "heteroscedastic"])
def test_units_of_each_target_lie_on_the_axis_after_the_batch(noise_given):
    location, scale = torch.tensor([5.0, -1.0]), torch.tensor([2.0, 0.25])
    halves = 2 if noise_given == "heteroscedastic" else 1
    outputs, targets = random(DRAWS, BATCH, 2 * halves, 3), random(BATCH, 2, 3, seed=1)
    together = Gaussian(noise_given, location=location, scale=scale)
    together.check_outputs(outputs[0], targets)
    apart = [Gaussian(noise_given, location=location[k].item(), scale=scale[k].item()) for k in range(2)]
    pieces = [one.log_prob(outputs[:, :, k::2], targets[:, k : k + 1]) for k, one in enumerate(apart)]
    torch.testing.assert_close(together.log_prob(outputs, targets), sum(pieces))
    means = torch.cat([one.mean(outputs[:, :, k::2]) for k, one in enumerate(apart)], 2)
    torch.testing.assert_close(together.mean(outputs), means)


def test_a_large_location_costs_no_precision_in_single_precision_outputs():
    # 1e6 in float32 has a grid of 0.06, as coarse as this scale: the targets must be centred before they are rounded.
    likelihood = Gaussian(0.1, location=1e6, scale=0.1)
    targets = torch.tensor([1e6 + 0.03], dtype=torch.float64)
    answer = likelihood.log_prob(torch.tensor([[[0.2]]]), targets).item()
    assert answer == pytest.approx(stats.norm.logpdf(0.03, 0.02, 0.1), rel=1e-5)


def test_casting_a_network_does_not_round_the_units_of_its_targets():
    likelihood = Gaussian(1.0, location=[2001.0, 3.0], scale=[1.001, 1.0]).to(torch.bfloat16)
    torch.testing.assert_close(likelihood.mean(torch.zeros(1, 1, 2)), torch.tensor([[[2001.0, 3.0]]]), rtol=0, atol=0)
    assert not list(likelihood.state_dict())


def test_whole_numbers_beyond_single_precision_keep_their_last_digits():
    seconds = torch.tensor([1_700_000_001, 1_700_000_002])
    assert Gaussian().prepare(seconds).tolist() == seconds.tolist()
    assert Gaussian().prepare(np.array([3, 1 << 24])).dtype == torch.float32


@pytest.mark.parametrize("likelihood", [Gaussian(0.7, location=3.0, scale=2.0), Poisson()])
def test_quantiles_invert_the_distribution_function(likelihood):
    outputs = random(DRAWS, BATCH, scale=1.5)
    levels = torch.tensor([1e-9, 0.2, 0.5, 0.95, 1 - 1e-12], dtype=torch.float64)
    mean = likelihood.mean(outputs)
    expected = stats.poisson.ppf(levels, mean) if likelihood.discrete else stats.norm.ppf(levels, mean, 0.7)
    np.testing.assert_allclose(likelihood.quantile(outputs, levels), expected, rtol=1e-9)


def test_learned_noise_reaches_the_root_mean_square_of_the_residuals():
    # The maximum of the likelihood over one common noise is known exactly.
    residuals = random(1, 50, 1, scale=3.0)
    likelihood = Gaussian("learned", initial=0.5).double()
    assert likelihood.noise_variance(residuals)[0, 0].item() == pytest.approx(0.25)
    optimizer = torch.optim.LBFGS(
        likelihood.parameters(),
        max_iter=100,
        tolerance_change=0,
        tolerance_grad=1e-9,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = -likelihood.log_prob(residuals, torch.zeros(50)).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = likelihood.noise_variance(residuals)[0, 0].item()
    assert found == pytest.approx(residuals.square().mean().item(), rel=1e-6)


def test_heteroscedastic_reads_means_then_raw_standard_deviations():
    outputs, targets = random(DRAWS, BATCH, 4), random(BATCH, 2, seed=1)
    likelihood = Gaussian("heteroscedastic")
    std = np.logaddexp(0, outputs[..., 2:].numpy())
    expected = stats.norm.logpdf(targets, outputs[..., :2], std).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets), expected, rtol=1e-10)
    np.testing.assert_allclose(likelihood.noise_variance(outputs), std**2, rtol=1e-10)
    assert likelihood.width(targets) == 4
    assert likelihood.width(targets[:, 0]) == 2
    assert likelihood.mean(outputs[..., :2]).shape == (DRAWS, BATCH)


@given(st.floats(-80, 80))
@settings(max_examples=100, deadline=None)
def test_heteroscedastic_is_finite_and_smooth_where_softplus_would_underflow(raw):
    outputs = torch.tensor([[[0.0, raw]]], dtype=torch.float64, requires_grad=True)
    value = Gaussian("heteroscedastic").log_prob(outputs, torch.zeros(1))
    value.backward()
    log_std = math.log(math.log1p(math.exp(raw))) if raw > -30 else raw
    assert value.item() == pytest.approx(-log_std - 0.5 * math.log(2 * math.pi), rel=1e-7, abs=1e-7)
    slope = math.exp(-np.logaddexp(0, -raw) - log_std)
    assert outputs.grad[0, 0, 1].item() == pytest.approx(-slope, rel=1e-6)


def test_gaussian_in_single_precision_takes_a_tiny_standard_deviation():
    value = Gaussian("heteroscedastic").log_prob(torch.tensor([[[0.0, -60.0]]]), torch.zeros(1))
    assert value.item() == pytest.approx(60.0 - 0.5 * math.log(2 * math.pi), rel=1e-6)


def test_cdfs_match_scipy():
    values, outputs = torch.tensor([-1.0, 0.0, 2.3, 4.0, 9.0]).double(), random(DRAWS, BATCH, scale=1.0)
    np.testing.assert_allclose(Gaussian(0.7).cdf(outputs, values), stats.norm.cdf(values, outputs, 0.7), atol=1e-12)
    np.testing.assert_allclose(Poisson().cdf(outputs, values), stats.poisson.cdf(values, outputs.exp()), atol=1e-12)


def test_poisson_mean_and_variance_are_the_rate():
    outputs = random(DRAWS, BATCH, 1)
    torch.testing.assert_close(Poisson().mean(outputs), outputs[..., 0].exp())
    torch.testing.assert_close(Poisson().noise_variance(outputs), outputs[..., 0].exp())


def _logit_integrals(means, stds):
    """Both objectives for two classes, by quadrature: the difference of the two logits is normal."""
    mean, std = means[0] - means[1], math.hypot(*stds)

    def against(function):
        return integrate.quad(lambda t: function(mean + std * t) * stats.norm.pdf(t), -10, 10)[0]

    return against(special.expit), against(lambda z: -np.logaddexp(0, -z))


@pytest.mark.parametrize("objective", ["log_expected", "expected"])
def test_gaussian_logits_agree_with_quadrature(objective):
    samples = 40_000
    means, raws = [0.8, -0.3], [1.5, 0.2]
    stds = [math.log1p(math.exp(raw)) for raw in raws]
    outputs = torch.tensor([[[*means, *raws]]], dtype=torch.float64)
    probability, expected_log = _logit_integrals(means, stds)
    likelihood = GaussianLogits(objective, samples=samples)
    keys = noise.keys(3, noise.Stream.LOGITS, draws=[0])
    answer = likelihood.log_prob(outputs, torch.tensor([0]), keys).item()
    # Standard deviations of one sample, by a second simulation; four standard errors are a chance of 6e-5.
    z = np.random.default_rng(0).normal(means, stds, (100_000, 2))
    log_p = z[:, 0] - special.logsumexp(z, axis=1)
    if objective == "expected":
        assert answer == pytest.approx(expected_log, abs=4 * log_p.std() / math.sqrt(samples))
    else:
        error = np.exp(log_p).std() / probability / math.sqrt(samples)
        assert answer == pytest.approx(math.log(probability), abs=4 * error)
    error = np.exp(log_p).std() / math.sqrt(samples)
    assert likelihood.probs(outputs, keys)[0, 0, 0].item() == pytest.approx(probability, abs=4 * error)


@given(st.integers(0, 2**31), st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_expected_is_a_lower_bound_of_log_expected(seed, samples):
    outputs, labels = random(DRAWS, BATCH, 2 * CLASSES, seed=seed), torch.tensor([0, 1, 2, 3, 0])
    keys = noise.keys(seed, noise.Stream.LOGITS, draws=range(DRAWS))
    bound = GaussianLogits("expected", samples).log_prob(outputs, labels, keys)
    full = GaussianLogits("log_expected", samples).log_prob(outputs, labels, keys)
    assert bool((bound <= full + 1e-12).all())
    if samples == 1:
        torch.testing.assert_close(bound, full)


def test_gaussian_logits_are_the_softmax_when_their_spread_vanishes():
    means = random(DRAWS, BATCH, CLASSES)
    outputs, labels = torch.cat((means, torch.full_like(means, -200.0)), -1), torch.tensor([0, 3, 1, 1, 2])
    for objective in ("log_expected", "expected"):
        likelihood = GaussianLogits(objective, samples=7)
        torch.testing.assert_close(likelihood.log_prob(outputs, labels), Categorical().log_prob(means, labels))
        torch.testing.assert_close(likelihood.probs(outputs), Categorical().probs(means))


def test_gaussian_logits_answers_do_not_depend_on_the_rest_of_the_batch_or_on_blocks(monkeypatch):
    outputs, labels = random(DRAWS, BATCH, 2 * CLASSES), torch.tensor([0, 3, 1, 1, 2])
    likelihood = GaussianLogits(samples=50)
    keys = noise.keys(1, noise.Stream.LOGITS, draws=range(DRAWS))
    together = likelihood.probs(outputs, keys)
    alone = torch.cat([likelihood.probs(outputs[:, i : i + 1], keys) for i in range(BATCH)], 1)
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=0)
    split = torch.cat([likelihood.probs(outputs[i : i + 1], keys[i : i + 1]) for i in range(DRAWS)])
    torch.testing.assert_close(together, split, rtol=1e-13, atol=0)

    def gradient():
        given_outputs = outputs.clone().requires_grad_()
        likelihood.log_prob(given_outputs, labels, keys).sum().backward()
        return given_outputs.grad

    whole, whole_log_prob = gradient(), likelihood.log_prob(outputs, labels, keys)
    monkeypatch.setattr(sampled_logits, "_BLOCK_ON_CPU", 50 * CLASSES * 2)
    torch.testing.assert_close(likelihood.probs(outputs, keys), together, rtol=1e-13, atol=0)
    torch.testing.assert_close(likelihood.log_prob(outputs, labels, keys), whole_log_prob, rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient(), whole, rtol=1e-12, atol=1e-14)


def test_gaussian_logits_noise_follows_its_keys_and_differs_between_positions_in_training():
    outputs, labels = random(1, 1, 2 * CLASSES).expand(2, 100, -1), torch.ones(100, dtype=torch.int64)
    likelihood = GaussianLogits(samples=10)
    keys = noise.keys(1, noise.Stream.LOGITS, draws=range(2))
    value = likelihood.log_prob(outputs, labels, keys)
    # One table of noise for each draw, and for each position a sign of every class: all 16 ways, twice.
    assert len({round(each, 10) for each in value.flatten().tolist()}) == 2 * 2**CLASSES
    torch.testing.assert_close(likelihood.log_prob(outputs, labels, keys), value, rtol=0, atol=0)
    probs = likelihood.probs(outputs, keys)
    torch.testing.assert_close(probs[:, 0], probs[:, 2], rtol=1e-13, atol=0)
    assert not torch.allclose(probs[0], probs[1])
    default = noise.keys(0, noise.Stream.LOGITS, draws=range(2))
    torch.testing.assert_close(likelihood.probs(outputs), likelihood.probs(outputs, default))
    torch.testing.assert_close(likelihood.probs(outputs).sum(-1), torch.ones(2, 100).double())


def test_gaussian_logits_for_pixels_treat_each_as_a_position():
    outputs, labels = random(2, 3, 2 * CLASSES, 5), torch.randint(0, CLASSES, (3, 5))
    likelihood = GaussianLogits(samples=20, class_dim=1)
    flat = GaussianLogits(samples=20)
    keys = noise.keys(1, noise.Stream.LOGITS, draws=range(2))
    rows = outputs.movedim(2, -1).reshape(2, 15, -1)
    expected = flat.log_prob(rows, labels.reshape(-1), keys).view(2, 3, 5).sum(-1)
    torch.testing.assert_close(likelihood.log_prob(outputs, labels, keys), expected)
    assert likelihood.probs(outputs).shape == (2, 3, 5, CLASSES)
    likelihood.check_outputs(outputs[0], labels)


def test_half_precision_outputs_are_scored_in_single_precision():
    outputs = random(1, BATCH, CLASSES).bfloat16()
    labels = torch.tensor([0, 3, 1, 1, 2])
    assert Categorical().log_prob(outputs, labels).dtype == torch.float32
    torch.testing.assert_close(Categorical().log_prob(outputs, labels), Categorical().log_prob(outputs.float(), labels))


def test_prepare_converts_what_it_can():
    assert Categorical().prepare(np.array([0, 2], dtype=np.uint8)).dtype == torch.int64
    assert Categorical().prepare([True, False]).tolist() == [1, 0]
    for answers in ([1.0, 0.0], [True, False], np.array([1, 0], dtype=np.int8), torch.tensor([1.0, 0.0])):
        assert Bernoulli().prepare(answers).tolist() == [1, 0]
        assert Bernoulli().prepare(answers).dtype == torch.int64
    assert Gaussian().prepare([1, 2]).dtype == torch.float32
    assert Gaussian().prepare(np.array([1.0, 2.0])).dtype == torch.float64
    assert Gaussian().prepare(torch.zeros(3, dtype=torch.float16)).dtype == torch.float32
    assert Poisson().prepare([0, 3]).tolist() == [0.0, 3.0]
    locked = np.array([1.0, 2.0])
    locked.flags.writeable = False
    assert Gaussian().prepare(locked).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("likelihood", "targets", "message"),
    [
        (Categorical(), [0.0, 1.0], "integer labels from 0, got torch.float64"),
        (Categorical(), [0, -1], "integers from 0, got -1"),
        (Categorical(classes=3), [0, 3], "below classes=3, got 3"),
        (Categorical(), [], "targets are empty"),
        (Categorical(), 3, "a single number"),
        (Categorical(), ["cat", "dog"], "must be numbers, got str"),
        (Bernoulli(), [0, 2], "0 and 1, got 2"),
        (Bernoulli(), [0.0, 0.5], "0 and 1, got 0.5"),
        (Bernoulli(), [0.0, float("nan")], "0 and 1, got nan"),
        (Gaussian(), [1.0, float("nan"), float("inf")], "1 NaN and 1 infinite"),
        (Poisson(), [1.0, 2.5], "whole numbers from 0, got 2.5"),
        (Poisson(), [-1], "whole numbers from 0, got -1"),
    ],
)
def test_prepare_refuses_targets_in_one_line(likelihood, targets, message):
    with pytest.raises(ValueError, match=message) as caught:
        likelihood.prepare(targets)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets", "message"),
    [
        (
            Categorical(),
            (6, 3),
            torch.arange(6) + 4,
            "Categorical needs 10 outputs for these targets, the network gives 3",
        ),
        (
            Categorical(classes=3),
            (6, 4),
            torch.zeros(6).long(),
            "needs 3 outputs for these targets, the network gives 4",
        ),
        (Categorical(class_dim=2), (6, 4), torch.zeros(6).long(), "classes on axis 2"),
        (Categorical(), (6, 4, 5), torch.zeros(6).long(), r"a label for each of \[batch, 5\]"),
        (Categorical(), (5, 4), torch.zeros(6).long(), "got 5 rows for 6 examples"),
        (Categorical(), (), torch.zeros(6).long(), "got a single number for 6 examples"),
        (GaussianLogits(), (6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), "GaussianLogits needs 6 outputs"),
        (GaussianLogits(), (6, 7), torch.tensor([0, 1, 2, 0, 1, 2]), "GaussianLogits needs 6 outputs"),
        (
            Gaussian(),
            (6, 2),
            torch.zeros(6),
            "Gaussian needs 1 output for these targets, the network gives 2",
        ),
        (
            Gaussian("heteroscedastic"),
            (6, 1),
            torch.zeros(6),
            "needs 2 outputs for these targets, the network gives 1",
        ),
        (Gaussian(), (6, 3, 2), torch.zeros(6, 2, 3), r"needs \[batch, 2, 3\] .* gives \[batch, 3, 2\]"),
        (
            Gaussian("heteroscedastic"),
            (6, 1, 2),
            torch.zeros(6, 1),
            r"needs \[batch, 2\] .* gives \[batch, 1, 2\]",
        ),
        (
            Gaussian(location=[1.0, 2.0, 3.0]),
            (6, 2),
            torch.zeros(6, 2),
            "location must be a number or one per target, 2, got 3",
        ),
        (Gaussian(scale=[1.0, 2.0]), (6,), torch.zeros(6), "scale must be a number or one per target, 1, got 2"),
        (Poisson(), (6, 2), torch.zeros(6, 3), "Poisson needs 3 outputs"),
        (Bernoulli(), (6, 2), torch.zeros(6).long(), "Bernoulli needs 1 output"),
    ],
)
def test_check_outputs_refuses_a_network_that_does_not_fit(likelihood, outputs, targets, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_outputs(torch.zeros(outputs), targets)


def test_check_outputs_accepts_what_fits():
    labels = torch.tensor([0, 1, 2])
    Categorical().check_outputs(torch.zeros(3, 10), labels)
    Categorical().check_outputs(torch.zeros(3, 5, 2, 2), torch.zeros(3, 2, 2).long())
    GaussianLogits().check_outputs(torch.zeros(3, 8), labels)
    Gaussian("heteroscedastic").check_outputs(torch.zeros(3, 4, 7), torch.zeros(3, 2, 7))
    Gaussian().check_outputs(torch.zeros(3, 1, 7), torch.zeros(3, 7))
    with pytest.raises(TypeError, match="must return a tensor, got dict: pick one with output="):
        Categorical().check_outputs({"logits": 1}, labels)
    with pytest.raises(ValueError, match="floating numbers"):
        Categorical().check_outputs(torch.zeros(3, 10).long(), labels)


def test_width_counts_the_outputs_that_targets_need():
    labels, column, pairs = torch.tensor([0, 4, 1]), torch.zeros(3, 1), torch.zeros(3, 2)
    assert Categorical().width(labels) == 5
    assert Categorical(classes=9).width(labels) == 9
    assert GaussianLogits().width(labels) == 10
    for likelihood in (Bernoulli(), Gaussian(), Poisson()):
        assert [likelihood.width(targets) for targets in (column[:, 0], column, pairs)] == [1, 1, 2]


def test_more_samples_than_the_noise_can_number_are_refused():
    with pytest.raises(ValueError, match="samples=2000000000 is too many"):
        GaussianLogits(samples=2_000_000_000).log_prob(random(1, 1, 4), torch.tensor([0]))


def test_log_prob_refuses_targets_that_would_broadcast():
    for likelihood, targets in ((Gaussian(), torch.zeros(1)), (Categorical(), torch.zeros(BATCH, 2).long())):
        with pytest.raises(ValueError, match="do not fit outputs"):
            likelihood.log_prob(random(DRAWS, BATCH, 1), targets)
    with pytest.raises(ValueError, match="do not fit outputs"):
        GaussianLogits().log_prob(random(DRAWS, BATCH, 2), torch.zeros(3).long())
    with pytest.raises(ValueError, match="2 outputs per class"):
        GaussianLogits().probs(random(DRAWS, BATCH, 3))
    with pytest.raises(ValueError, match="2 outputs per target"):
        Gaussian("heteroscedastic").mean(random(DRAWS, BATCH, 3))
    with pytest.raises(ValueError, match="one row of 2 per draw"):
        GaussianLogits().probs(random(DRAWS, BATCH, 4), torch.zeros(1, 2).int())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0.0), "above 0, got 0.0"),
        (lambda: Gaussian(-1), "above 0, got -1"),
        (lambda: Gaussian(float("nan")), "above 0, got nan"),
        (lambda: Gaussian("learnt"), "did you mean 'learned'"),
        (lambda: Gaussian("learned", initial=0), "initial must be"),
        (lambda: Gaussian("Learned"), "did you mean 'learned'"),
        (lambda: Gaussian(scale=0.0), "scale must be a finite number above 0, got 0.0"),
        (lambda: Gaussian(scale=[1.0, -2.0]), "scale must be a finite number above 0, got -2.0"),
        (lambda: Gaussian(location=math.nan), "location must be a finite number or one per target, got nan"),
        (lambda: Gaussian(location="mean"), "location must be a number or one per target, got 'mean'"),
        (lambda: Gaussian(location=[]), "location must be a finite number or one per target, got"),
        (lambda: Gaussian(location=[[1.0]]), "location must be a finite number or one per target, got"),
        (lambda: Gaussian(location=[1.0, 2.0], scale=[1.0] * 3), "must have the same length, got 2 and 3"),
        (lambda: GaussianLogits("expectd"), "did you mean 'expected'"),
        (lambda: GaussianLogits(samples=0), "at least 1, got 0"),
        (lambda: Categorical(class_dim=0), "class_dim must not be 0"),
        (lambda: Categorical(classes=0), "classes must be at least 1"),
        (lambda: Categorical(class_weights=[1.0, -1.0]), "non-negative"),
        (lambda: Categorical(class_weights=[1.0, 1.0], classes=3), "classes=3 numbers, got 2"),
        (lambda: likelihoods.parse("categoricl"), "did you mean 'categorical'"),
        (lambda: likelihoods.parse("poisson:3"), "takes no options, got '3'"),
        (lambda: likelihoods.parse("gaussian-logits:expected,1.5"), "whole number of at least 1, got 1.5"),
        (lambda: likelihoods.parse("categorical:many"), "cannot be made from"),
        (lambda: likelihoods.from_spec({}), "unknown likelihood None; known: categorical"),
        (lambda: likelihoods.from_spec({"name": "poisson", "noise": 1}), "cannot be made from"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("categorical", "Categorical()"),
        ("categorical:10", "Categorical(classes=10)"),
        ("Bernoulli", "Bernoulli()"),
        ("gaussian:1", "Gaussian(noise=1)"),
        ("gaussian:1e-3", "Gaussian(noise=0.001)"),
        ("gaussian:learned", "Gaussian(noise='learned', initial=1.0)"),
        ("gaussian:learned,0.5", "Gaussian(noise='learned', initial=0.5)"),
        ("gaussian:heteroscedastic", "Gaussian(noise='heteroscedastic')"),
        ("gaussian:learned,1,20,4", "Gaussian(noise='learned', initial=1, location=20.0, scale=4.0)"),
        ("poisson", "Poisson()"),
        ("gaussian-logits", "GaussianLogits(objective='log_expected', samples=1000)"),
        ("gaussian_logits:expected,100", "GaussianLogits(objective='expected', samples=100)"),
        (
            "gaussian-logits:log-expected, 5",
            "GaussianLogits(objective='log_expected', samples=5)",
        ),
    ],
)
def test_text_and_spec_are_two_ways_to_the_same_likelihood(text, expected):
    likelihood = likelihoods.parse(text)
    assert repr(likelihood) == expected
    again = likelihoods.from_spec(json.loads(json.dumps(likelihood.spec())))
    assert repr(again) == expected
    assert type(again) is type(likelihood)


def test_spec_keeps_class_weights_and_state_keeps_learned_noise():
    weighted = Categorical(class_weights=[1.0, 2.0], class_dim=-1)
    assert likelihoods.from_spec(weighted.spec()).spec() == weighted.spec()
    units = Gaussian(0.5, location=np.array([1.0, 2.0]), scale=3)
    assert units.spec() == {"name": "gaussian", "noise": 0.5, "location": [1.0, 2.0], "scale": 3.0}
    assert likelihoods.from_spec(json.loads(json.dumps(units.spec()))).spec() == units.spec()
    learned = Gaussian("learned", initial=0.3)
    other = Gaussian("learned")
    other.load_state_dict(learned.state_dict())
    assert other.noise_variance(torch.zeros(1, 1)).item() == pytest.approx(0.09)
    assert not list(Categorical(class_weights=[1.0]).state_dict())
