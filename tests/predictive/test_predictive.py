"""The predictive's formulas against hand-computed cases, scipy and quadrature."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from bayesify import noise
from bayesify.likelihoods import Bernoulli, Categorical, Gaussian, GaussianLogits, Poisson
from bayesify.predictive import Predictive


def from_probs(probs, **options):
    """A predictive whose draws have exactly these class probabilities."""
    return Predictive(torch.tensor(probs, dtype=torch.float64).log(), Categorical(), **options)


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_draws_that_disagree_by_hand():
    p = from_probs([[[0.9, 0.1]], [[0.2, 0.8]]])
    entropy = -(0.55 * math.log(0.55) + 0.45 * math.log(0.45))
    first, second = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1)), -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
    assert p.probs[0].tolist() == pytest.approx([0.55, 0.45])
    assert p.draw_probs[:, 0, 0].tolist() == pytest.approx([0.9, 0.2])
    assert p.labels.tolist() == [0]
    assert p.confidence.item() == pytest.approx(0.55)
    assert p.entropy.item() == pytest.approx(entropy)
    assert p.aleatoric.item() == pytest.approx((first + second) / 2)
    assert p.epistemic.item() == pytest.approx(entropy - (first + second) / 2)
    assert p.std[0].tolist() == pytest.approx([0.35, 0.35])
    assert p.expected_error.item() == pytest.approx(0.5)
    assert p.log_prob([1]).item() == pytest.approx(math.log(0.45))
    assert (p.draws, len(p), p.kind) == (2, 1, "classification")


def test_expected_error_is_the_share_outside_the_commonest_label_not_the_mean_label():
    # Two draws vote for class 1, one for class 0 so strongly that the mean says 0.
    p = from_probs([[[0.98, 0.02]], [[0.49, 0.51]], [[0.49, 0.51]]])
    assert p.labels.tolist() == [0]
    assert p.expected_error.item() == pytest.approx(1 / 3)


def test_certain_draws_have_no_entropy_and_their_disagreement_is_all_epistemic():
    p = Predictive(torch.tensor([[[0.0, -math.inf]], [[-math.inf, 0.0]]]), Categorical())
    assert p.entropy.item() == pytest.approx(math.log(2))
    assert p.aleatoric.item() == 0.0
    assert p.epistemic.item() == pytest.approx(math.log(2))


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5), st.floats(0, 30))
@settings(max_examples=80, deadline=None)
def test_uncertainties_add_up_and_stay_in_their_bounds(seed, draws, classes, scale):
    p = Predictive(random(draws, 7, classes, seed=seed, scale=scale).float(), Categorical())
    assert bool((p.epistemic >= 0).all())
    assert bool((p.entropy >= 0).all())
    assert bool((p.entropy <= math.log(classes) + 1e-5).all())
    torch.testing.assert_close(p.aleatoric + p.epistemic, p.entropy, rtol=1e-4, atol=1e-5)
    assert bool((p.epistemic <= math.log(draws) + 1e-5).all())  # it is information about which draw it was
    np.testing.assert_allclose(p.entropy, stats.entropy(p.probs.double(), axis=-1), atol=1e-5)
    if draws == 1:
        assert p.epistemic.tolist() == [0.0] * 7
        assert p.std.abs().max() == 0


def test_epistemic_is_the_mutual_information_between_draw_and_label():
    p = Predictive(random(6, 1, 3), Categorical())
    joint = p.draw_probs[:, 0].numpy() / 6
    independent = joint.sum(0, keepdims=True) * joint.sum(1, keepdims=True)
    assert p.epistemic.item() == pytest.approx(special.rel_entr(joint, independent).sum(), abs=1e-12)


def test_log_prob_averages_probabilities_not_logarithms_and_never_underflows():
    outputs = torch.tensor([[[0.0, -2000.0]], [[0.0, -1000.0]]])
    p = Predictive(outputs, Categorical())
    assert p.log_prob([1]).item() == pytest.approx(-1000 - math.log(2))
    assert Predictive(torch.zeros(3, 1, 2), Categorical(class_weights=[9.0, 9.0])).log_prob(
        [1]
    ).item() == pytest.approx(-math.log(2))
    pixels = random(4, 2, 3, 5)
    joint = torch.log_softmax(pixels, 2)[:, :, 0].sum(-1).exp().mean(0).log()
    torch.testing.assert_close(Predictive(pixels, Categorical()).log_prob(torch.zeros(2, 5).long()), joint)


def test_bernoulli_and_several_questions():
    p = Predictive(random(4, 5, 1), Bernoulli())
    assert p.probs.shape == (5, 2)
    torch.testing.assert_close(p.probs[:, 1], torch.sigmoid(p.outputs[..., 0]).mean(0))
    several = Predictive(random(4, 5, 3), Bernoulli())
    assert several.labels.shape == several.epistemic.shape == several.accept(at_least=0.6).shape == (5, 3)


def test_regression_variance_is_the_law_of_total_variance():
    means, raw = random(5, 3, 1, scale=2.0), random(5, 3, 1, seed=1)
    p = Predictive(torch.cat((means, raw), -1), Gaussian("heteroscedastic"))
    noise_variance = np.logaddexp(0, raw[..., 0].numpy()) ** 2
    np.testing.assert_allclose(p.mean, means[..., 0].numpy().mean(0))
    np.testing.assert_allclose(p.aleatoric, noise_variance.mean(0))
    np.testing.assert_allclose(p.epistemic, means[..., 0].numpy().var(0))
    np.testing.assert_allclose(p.variance, noise_variance.mean(0) + means[..., 0].numpy().var(0))
    np.testing.assert_allclose(p.std, p.variance.sqrt())
    density = stats.norm.pdf([1.0, 2.0, 3.0], means[..., 0], noise_variance**0.5).mean(0)
    np.testing.assert_allclose(p.log_prob([1.0, 2.0, 3.0]), np.log(density))


@pytest.mark.parametrize("level", [0.01, 0.4, 0.95, 0.9999])
def test_quantiles_of_a_gaussian_mixture_match_a_root_finder(level):
    means = random(6, 4, 1, scale=5.0)
    p = Predictive(means, Gaussian(0.4))
    for i, found in enumerate(p.quantile(level)):
        expected = optimize.brentq(
            lambda v, i=i: stats.norm.cdf(v, means[:, i, 0], 0.4).mean() - level, -100, 100, xtol=1e-12
        )
        assert found.item() == pytest.approx(expected, abs=1e-9)


def test_interval_of_one_draw_is_the_textbook_one():
    lower, upper = Predictive(torch.tensor([[[3.0]]]), Gaussian(2.0)).interval(0.95)
    assert [lower.item(), upper.item()] == pytest.approx([3 - 2 * 1.959964, 3 + 2 * 1.959964], abs=1e-5)


@pytest.mark.parametrize("level", [0.025, 0.3, 0.5, 0.975, 0.999])
def test_quantiles_of_counts_are_the_smallest_counts_that_reach_the_level(level):
    rates = torch.tensor([[0.01, 0.7, 3.0, 100.0, 20_000.0]], dtype=torch.float64)
    p = Predictive(rates.log(), Poisson())
    assert p.quantile(level).tolist() == stats.poisson.ppf(level, rates[0]).tolist()
    mixture = Predictive(torch.tensor([[1.0], [9.0]]).log(), Poisson())
    count = mixture.quantile(level).item()
    chance = stats.poisson.cdf([count, count - 1], [[1.0], [9.0]]).mean(0)
    assert chance[0] >= level > chance[1]


def test_cdf_is_the_mean_of_the_draws():
    p = Predictive(torch.tensor([[0.0], [1.0]]), Gaussian(1.0))
    assert p.cdf(torch.tensor([0.5])).item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"\[1\] like mean, got \[2\]"):
        p.cdf(torch.zeros(2))


def test_samples_of_classes_have_the_frequencies_of_the_mixture():
    p = Predictive(random(5, 40, 4, scale=2.0), Categorical())
    labels = p.sample(4000, seed=1)
    assert (labels.shape, labels.dtype) == ((4000, 40), torch.int64)
    observed = torch.nn.functional.one_hot(labels, 4).sum(0).numpy()
    expected = 4000 * p.probs.numpy()
    statistic = (np.square(observed - expected) / expected).sum()
    # 40 inputs with 3 degrees of freedom each; they share their draws of the weights, so the tail is kept wide.
    assert stats.chi2.sf(statistic, 120) > 1e-4
    certain = Predictive(torch.tensor([[[0.0, 40.0, -math.inf]]]), Categorical()).sample(20_000)
    assert certain.unique().tolist() == [1]


@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.5), Gaussian("heteroscedastic", location=[3.0, -1.0], scale=[2.0, 0.1]), Poisson()]
)
def test_samples_of_numbers_have_the_moments_of_the_predictive(likelihood):
    outputs = random(6, 7, 4)
    p = Predictive(outputs, likelihood)
    count = 20_000
    samples = p.sample(count, seed=3)
    assert samples.shape == (count, *p.mean.shape)
    centred = samples - p.mean
    z = centred.mean(0) / p.std * math.sqrt(count)
    assert z.abs().max() < 4.5  # at most 28 z-scores, chance 2e-4
    fourth = centred.square().var(0).sqrt()
    z = (centred.square().mean(0) - p.variance) / fourth * math.sqrt(count)
    assert z.abs().max() < 4.5


def test_samples_follow_the_whole_distribution_function():
    means = random(5, 3, 1, scale=3.0)
    p = Predictive(means, Gaussian(0.4))
    samples = p.sample(5000, seed=2).numpy()
    for i in range(3):
        test = stats.kstest(samples[:, i], lambda v, i=i: stats.norm.cdf(v[:, None], means[:, i, 0], 0.4).mean(1))
        assert test.pvalue > 1e-4


def test_a_sample_uses_one_draw_of_the_weights_and_separate_noise_for_each_input():
    # Draws far apart and tiny noise: which draw it was can be read off every input.
    offsets = torch.tensor([0.0, 100.0, 200.0])[:, None, None].expand(3, 50, 1)
    samples = Predictive(offsets, Gaussian(1.0)).sample(3000)
    which = (samples / 100).round()
    assert bool((which == which[:, :1]).all())
    counts = np.bincount(which[:, 0].long())
    assert stats.chisquare(counts).pvalue > 1e-4
    correlation = np.corrcoef((samples - 100 * which).T.numpy())[np.triu_indices(50, 1)]
    assert np.abs(correlation * math.sqrt(3000)).max() < 5.0  # 1225 z-scores, chance 7e-4
    # The choice of the draw and the noise are independent, too.
    residual = (samples - 100 * which)[:, 0].numpy()
    assert abs(np.corrcoef(which[:, 0].numpy(), residual)[0, 1]) * math.sqrt(3000) < 4.0


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli(), Gaussian("learned"), Poisson(), GaussianLogits()])
def test_a_sample_does_not_depend_on_batch_mates_or_on_how_many_are_asked_for(likelihood):
    outputs = random(4, 6, 2)
    p = Predictive(outputs, likelihood)
    samples = p.sample(9, seed=5)
    assert torch.equal(p.sample(9, seed=5), samples)
    assert torch.equal(p.sample(4, seed=5), samples[:4])
    others = Predictive(torch.cat((outputs[:, :3], random(4, 2, 2, seed=8)), 1), likelihood)
    assert torch.equal(others.sample(9, seed=5)[:, :3], samples[:, :3])
    for index in (slice(2, 5), [4, 1], torch.tensor([5, 0]), np.array([False, True] * 3)):
        rows = torch.from_numpy(index) if isinstance(index, np.ndarray) else index
        assert torch.equal(p[index].sample(9, seed=5), samples[:, rows])
    assert torch.equal(p[3:][1].sample(9, seed=5), samples[:, 4:5])
    assert p[0:0].sample(2).shape == (2, 0, *samples.shape[2:])
    with pytest.raises(ValueError, match="count must be an integer of at least 1, got 0"):
        p.sample(0)


def test_accept_by_every_score():
    p = from_probs([[[0.9, 0.1], [0.6, 0.4]], [[0.7, 0.3], [0.1, 0.9]]])
    assert p.accept(at_least=0.75).tolist() == [True, False]
    assert p.accept(at_least=0.75, by="confidence").tolist() == [True, False]
    for name in ("entropy", "epistemic", "expected_error", "std"):
        middle = p.score(name).mean().item()
        assert p.accept(at_most=middle, by=name).tolist() == [True, False], name
    assert p.score("std").tolist() == pytest.approx([0.1, 0.25])
    assert p.accept(at_most=p.aleatoric.max().item(), by="aleatoric").tolist() == [True, True]
    regression = Predictive(torch.tensor([[0.0, 0.0], [0.0, 9.0]]), Gaussian(1.0))
    assert regression.accept(at_most=4.0).tolist() == [True, False]
    assert regression.accept(at_most=3.0).tolist() == [False, False]
    assert regression.accept(at_most=3.0, level=0.8).tolist() == [True, False]
    assert regression.accept(at_most=1.5, by="std").tolist() == [True, False]


def test_accept_says_what_it_needs():
    p = from_probs([[[0.9, 0.1]]])
    with pytest.raises(ValueError, match="one of at_least= and at_most="):
        p.accept()
    with pytest.raises(ValueError, match="use at_least="):
        p.accept(at_most=0.5)
    with pytest.raises(ValueError, match="use at_most="):
        p.accept(at_least=0.5, by="entropy")
    with pytest.raises(ValueError, match="did you mean 'epistemic'"):
        p.accept(at_most=0.5, by="epistemc")


def test_the_other_kind_of_answer_is_an_attribute_error():
    classes, numbers = from_probs([[[0.9, 0.1]]]), Predictive(torch.zeros(2, 3, 1), Gaussian())
    calls = {name: (lambda name=name: getattr(classes, name)) for name in ("mean", "variance")}
    calls |= {name: (lambda name=name: getattr(classes, name)(0.5)) for name in ("interval", "quantile", "cdf")}
    for name, call in calls.items():
        with pytest.raises(AttributeError, match=f"{name} is for regression") as caught:
            call()
        assert "\n" not in str(caught.value)
    for name in ("probs", "draw_probs", "labels", "confidence", "entropy", "expected_error", "names"):
        assert not hasattr(numbers, name)
        with pytest.raises(AttributeError, match="is for classification"):
            getattr(numbers, name)


def test_indexing_picks_inputs_and_changes_no_answer():
    outputs, keys = random(3, 6, 8), noise.keys(4, noise.Stream.LOGITS, draws=range(3))
    p = Predictive(outputs, GaussianLogits(samples=20), keys, class_names="abcd")
    for index in (2, -1, slice(1, 4), [0, 5], torch.tensor([1, 3]), np.array([True] * 3 + [False] * 3)):
        rows = slice(index, index + 1 or None) if isinstance(index, int) else index
        rows = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        torch.testing.assert_close(p[index].probs, p.probs[rows], rtol=1e-12, atol=0)
        torch.testing.assert_close(p[index].epistemic, p.epistemic[rows], rtol=1e-9, atol=1e-12)
    assert len(p[1:1]) == 0
    assert len(list(p)) == 6
    assert p[0].names == ["abcd"[p.labels[0]]]
    assert from_probs([[[0.9, 0.1]]]).names == ["0"]
    with pytest.raises(IndexError, match="index 6 is out of range for 6 inputs"):
        p[6]


def test_arrays_hold_every_answer():
    arrays = from_probs([[[0.9, 0.1], [0.6, 0.4]]]).numpy()
    assert set(arrays) == {
        "probs", "labels", "confidence", "entropy", "aleatoric", "epistemic", "expected_error", "std",
    }  # fmt: skip
    assert all(isinstance(array, np.ndarray) and len(array) == 2 for array in arrays.values())
    learned = Gaussian("learned")
    numbers = Predictive(torch.zeros(2, 3, 1), learned).numpy()
    np.testing.assert_allclose(numbers["upper"] - numbers["lower"], 2 * 1.959964, rtol=1e-5)


def test_training_on_does_not_change_an_answer_already_given():
    likelihood = Gaussian("learned", initial=2.0)
    p = Predictive(torch.zeros(2, 3, 1), likelihood)
    with torch.no_grad():
        likelihood.log_noise.zero_()
    assert p.variance.tolist() == pytest.approx([4.0] * 3)
    assert not p.variance.requires_grad


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"\[draws, batch, ...\], got shape \[3\]"):
        Predictive(torch.zeros(3), Gaussian())
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        Predictive(torch.zeros(0, 3, 2), Categorical())
    p = from_probs([[[0.9, 0.1]]])
    with pytest.raises(ValueError, match="one row per input, 1, got 2"):
        p.log_prob([0, 1])
    with pytest.raises(ValueError, match="from 0 to 1, got 5"):
        p.log_prob([5])
    numbers = Predictive(torch.zeros(2, 3, 1), Gaussian())
    for level in (0, 1, -0.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            numbers.quantile(level)
        with pytest.raises(ValueError, match="between 0 and 1"):
            numbers.interval(level)
    assert repr(p) == "Predictive(classification, 1 draw, 1 input, Categorical())"
    assert repr(copy.copy(p)) == repr(p)


@pytest.mark.parametrize("location", [1e6, 1.7e9])
def test_targets_far_from_zero_keep_what_draws_of_single_precision_differ_by(location):
    outputs = random(30, 7, 1, scale=0.3).float()
    near, far = (Predictive(outputs, Gaussian(0.5, location=where)) for where in (0.0, location))
    for name in ("epistemic", "variance", "std", "width"):
        torch.testing.assert_close(far.score(name), near.score(name), rtol=1e-6, atol=1e-6)
    # The answers themselves are the nearest numbers that there are.
    assert torch.equal(far.mean, (location + near.mean.double()).float())
    lower, upper = far.interval(0.9)
    assert torch.equal(lower, (location + Predictive(outputs.double(), Gaussian(0.5)).interval(0.9)[0]).float())
    assert bool((lower <= far.mean).all())
    assert bool((far.mean <= upper).all())
    values = near.mean.double() + 0.4
    torch.testing.assert_close(far.cdf(location + values), near.cdf(values), rtol=1e-6, atol=1e-6)


def test_a_width_needs_a_level_between_nothing_and_everything():
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="level must lie between 0 and 1, got"):
            Predictive(random(3, 2, 1), Gaussian()).score("width", level)
