"""Metrics against second implementations (scikit-learn, torchmetrics, scipy, brute force) and by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score, roc_curve
from torchmetrics.functional.classification import multiclass_calibration_error

from bayesify import metrics

# Few distinct values, so that ties are common.
scores = st.lists(st.integers(0, 4), min_size=1, max_size=7)


def random_probs(n=400, classes=5, seed=0):
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.full(classes, 0.4), n), generator.integers(0, classes, n)


def test_nll_brier_and_accuracy_match_scikit_learn():
    probs, labels = random_probs()
    assert metrics.accuracy(probs, labels) == (probs.argmax(1) == labels).mean()
    assert metrics.nll(probs, labels) == pytest.approx(log_loss(labels, probs))
    binary = probs[:, :2] / probs[:, :2].sum(1, keepdims=True)
    answers = (labels > 2).astype(int)
    assert metrics.brier(binary, answers) == pytest.approx(2 * brier_score_loss(answers, binary[:, 1]))


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
def test_ece_matches_torchmetrics(bins):
    probs, labels = random_probs()
    expected = multiclass_calibration_error(torch.tensor(probs), torch.tensor(labels), num_classes=5, n_bins=bins)
    assert metrics.expected_calibration_error(probs, labels, bins) == pytest.approx(expected.item(), abs=1e-6)


def test_ece_by_hand_at_the_edges():
    # Guo et al. close bins on the right: 0.5 belongs to the first of two, 1.0 to the last.
    curve = metrics.reliability_curve([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]], [1, 0, 0], bins=2)
    assert curve.count.tolist() == [1, 2]
    assert curve.accuracy.tolist() == [0.0, 0.5]
    assert curve.confidence.tolist() == pytest.approx([0.5, 0.9])
    ece = metrics.expected_calibration_error([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]], [1, 0, 0], bins=2)
    assert ece == pytest.approx(0.5 / 3 + 0.4 * 2 / 3)
    assert metrics.expected_calibration_error([[1.0, 0.0]] * 3, [0, 0, 0]) == 0.0
    assert metrics.expected_calibration_error([[1.0, 0.0]] * 3, [1, 1, 1]) == 1.0
    assert np.isnan(metrics.reliability_curve([[1.0, 0.0]], [0]).accuracy[:-1]).all()


def test_perfect_and_hopeless_predictions():
    perfect, labels = np.eye(3), [0, 1, 2]
    assert metrics.accuracy(perfect, labels) == 1.0
    assert metrics.nll(perfect, labels) == metrics.brier(perfect, labels) == 0.0
    assert metrics.nll(perfect, [1, 2, 0]) == math.inf
    assert metrics.brier(perfect, [1, 2, 0]) == 2.0
    assert metrics.accuracy([[1.0]], [0]) == 1.0
    assert metrics.aurc([0.3, 0.9], [0, 0]) == metrics.augrc([0.3, 0.9], [0, 0]) == 0.0
    assert metrics.aurc([0.3, 0.9], [1, 1]) == 1.0
    assert metrics.excess_aurc([0.3, 0.9], [1, 1]) == 0.0
    assert metrics.augrc([0.3, 0.9], [1, 1]) == pytest.approx(0.5)
    assert metrics.aurc([0.3], [1]) == 1.0


def brute_force_aurc(confidence, losses):
    """The mean over every order that a random tie-break could give."""
    areas = []
    for order in itertools.permutations(range(len(losses))):
        ranked = [confidence[i] for i in order]
        if ranked == sorted(ranked, reverse=True):
            sums = np.cumsum([losses[i] for i in order])
            areas.append((sums / np.arange(1, len(losses) + 1)).mean())
    return np.mean(areas)


@given(scores, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_aurc_is_the_mean_over_all_ways_to_break_ties(confidence, random):
    confidence = confidence[:5]  # every order is tried: 120 by 120
    losses = [random.choice([0.0, 1.0, 2.5]) for _ in confidence]
    area = metrics.aurc(confidence, losses)
    assert area == pytest.approx(brute_force_aurc(confidence, losses))
    best = min(brute_force_aurc(order, losses) for order in itertools.permutations(range(len(losses))))
    assert metrics.excess_aurc(confidence, losses) == pytest.approx(area - best, abs=1e-12)


@given(scores, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_selective_areas_do_not_depend_on_the_order_of_the_input(confidence, random):
    losses = [random.choice([0.0, 1.0]) for _ in confidence]
    order = list(range(len(losses)))
    random.shuffle(order)
    for area in (metrics.aurc, metrics.excess_aurc, metrics.augrc):
        shuffled = area([confidence[i] for i in order], [losses[i] for i in order])
        assert shuffled == pytest.approx(area(confidence, losses), abs=1e-12)


@given(st.integers(0, 2**31), st.integers(2, 60), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_augrc_obeys_the_identity_of_its_paper(seed, n, levels):
    generator = np.random.default_rng(seed)
    confidence, errors = generator.integers(0, levels, n), generator.permutation(np.arange(n) % 3 == 0)
    accuracy = 1 - errors.mean()
    ranking = roc_auc_score(~errors, confidence)
    expected = (1 - ranking) * accuracy * (1 - accuracy) + 0.5 * (1 - accuracy) ** 2
    assert metrics.augrc(confidence, errors) == pytest.approx(expected)


@given(scores, scores)
@settings(max_examples=60, deadline=None)
def test_auroc_counts_pairs_and_ties_by_half(known, unknown):
    wins = np.mean([(u > k) + 0.5 * (u == k) for k in known for u in unknown])
    assert metrics.auroc(known, unknown) == pytest.approx(wins)


@given(scores, scores)
@settings(max_examples=60, deadline=None)
def test_aupr_and_fpr95_from_every_threshold(known, unknown):
    known, unknown = np.array(known), np.array(unknown)
    area, recall_before, flagged = 0.0, 0.0, None
    for threshold in sorted({*known, *unknown}, reverse=True):
        caught, false = (unknown >= threshold).sum(), (known >= threshold).sum()
        recall = caught / len(unknown)
        area += (recall - recall_before) * caught / (caught + false)
        recall_before = recall
        if flagged is None and 100 * caught >= 95 * len(unknown):
            flagged = false / len(known)
    assert metrics.aupr(known, unknown) == pytest.approx(area)
    assert metrics.fpr95(known, unknown) == pytest.approx(flagged)


def test_fpr95_matches_the_roc_curve_of_scikit_learn():
    generator = np.random.default_rng(0)
    known, unknown = generator.normal(0, 1, 300), generator.normal(1.5, 1, 220)
    truth = np.repeat([0, 1], [300, 220])
    false, true, _ = roc_curve(truth, np.concatenate((known, unknown)), drop_intermediate=False)
    assert metrics.fpr95(known, unknown) == pytest.approx(false[np.argmax(true >= 0.95)])
    assert metrics.fpr95([0.0, 0.1], [1.0, 2.0]) == 0.0
    assert metrics.fpr95([5.0, 6.0], [1.0, 2.0]) == 1.0


def crps_by_integration(cdf, y, low, high):
    below = integrate.quad(lambda v: cdf(v) ** 2, low, y, limit=400)[0]
    return below + integrate.quad(lambda v: (cdf(v) - 1) ** 2, y, high, limit=400)[0]


@pytest.mark.parametrize("draws", [1, 2, 3, 6])
def test_crps_of_a_gaussian_mixture_is_the_integral_that_defines_it(draws):
    generator = np.random.default_rng(draws)
    means, stds = generator.normal(0, 2, (draws, 3)), generator.uniform(0.3, 2, (draws, 3))
    targets = np.array([-3.0, 0.5, 4.0])
    expected = np.mean([
        crps_by_integration(lambda v, i=i: stats.norm.cdf(v, means[:, i], stds[:, i]).mean(), y, -25, 25)
        for i, y in enumerate(targets)
    ])  # fmt: skip
    assert metrics.crps(means, stds, targets) == pytest.approx(expected, abs=1e-7)


def test_crps_without_noise_is_that_of_an_ensemble():
    # mean |x_i - y| - mean |x_i - x_j| / 2; one member is the absolute error.
    assert metrics.crps([[1.0, 2.0]], [[0.0, 0.0]], [4.0, 2.0]) == pytest.approx(1.5)
    members = np.array([0.0, 1.0, 4.0])
    expected = np.abs(members - 3.0).mean() - 0.5 * np.abs(members[:, None] - members).mean()
    assert metrics.crps(members[:, None], np.zeros((3, 1)), [3.0]) == pytest.approx(expected)


def test_crps_of_counts_is_the_integral_that_defines_it():
    rates = np.array([[0.4, 5.0, 700.0], [2.0, 9.0, 640.0]])
    targets = np.array([3.0, 0.0, 600.0])
    counts = np.arange(2000)
    chance = stats.poisson.cdf(counts, rates[..., None]).mean(0)
    expected = np.square(chance - (targets[:, None] <= counts)).sum(1).mean()
    assert metrics.crps_counts(rates, targets) == pytest.approx(expected, abs=1e-8)
    # By the energy form, too: E|X - y| - E|X - X'| / 2.
    weights = np.diff(np.append(0.0, chance[1]))[:80]
    spread = weights @ np.abs(counts[:80, None] - counts[:80]) @ weights
    energy = weights @ np.abs(counts[:80] - targets[1]) - 0.5 * spread
    assert metrics.crps_counts(rates[:, 1:2], targets[1:2]) == pytest.approx(energy, abs=1e-8)


def test_crps_of_counts_ends_whatever_the_rates_and_targets(monkeypatch):
    assert metrics.crps_counts([[1.0, math.inf]], [1.0, 2.0]) == math.inf
    # Far below the target nearly every count from the rate to it adds one: E|X - y| - E|X - X'| / 2.
    spread = np.subtract.outer(np.arange(40), np.arange(40))
    weights = stats.poisson.pmf(np.arange(40), 2.0)
    half = 0.5 * weights @ np.abs(spread) @ weights
    assert metrics.crps_counts([[2.0]], [1e12]) == pytest.approx(1e12 - 2.0 - half, abs=1e-3)
    # The mean over draws does not depend on how many examples are worked on at once.
    rates, targets = np.random.default_rng(0).gamma(2.0, 3.0, (4, 11)), np.arange(11.0)
    whole = metrics.crps_counts(rates, targets)
    monkeypatch.setattr("bayesify.metrics.regression._EXAMPLES_AT_A_TIME", 3)
    assert metrics.crps_counts(rates, targets) == pytest.approx(whole, rel=1e-13)


def test_crps_of_large_counts_is_that_of_normals():
    rates, targets = np.array([[99_000.0, 98_500.0], [99_900.0, 99_990.0]]), np.array([99_500.0, 97_000.0])
    exact = metrics.crps_counts(rates, targets)
    assert metrics.crps(rates, np.sqrt(rates), targets) == pytest.approx(exact, rel=1e-3)
    larger = 100 * rates
    assert metrics.crps_counts(larger, targets) == metrics.crps(larger, np.sqrt(larger), targets)


def test_errors_in_units_of_the_target_and_no_broadcasting():
    assert metrics.rmse(torch.tensor([1.0, 2.0]), torch.tensor([[4.0], [2.0]])) == pytest.approx(math.sqrt(4.5))
    assert metrics.mae([1.0, 2.0], [4.0, 2.0]) == 1.5
    assert metrics.interval_coverage([0, 0, 0], [1, 1, 1], [0, 1, 2]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match=r"same shape, got \[2\] and \[3\]"):
        metrics.rmse([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy([[0.5, 0.5]], [0, 1]), r"probs must be \[n, classes\]"),
        (lambda: metrics.accuracy([0.5, 0.5], [0, 1]), r"probs must be \[n, classes\]"),
        (lambda: metrics.nll([[0.5, 0.5]], [2]), "integers from 0 to 1, got 2 to 2"),
        (lambda: metrics.nll([[0.5, 0.5]], [0.5]), "integers from 0 to 1"),
        (lambda: metrics.brier([[2.0, -1.0]], [0]), "between 0 and 1, got -1 to 2"),
        (lambda: metrics.aurc([], []), "confidence must not be empty"),
        (lambda: metrics.aurc([0.1, float("nan")], [0, 1]), "confidence must not hold NaN, got 1 of 2"),
        (lambda: metrics.auroc([], [1.0]), "known_scores must not be empty"),
        (lambda: metrics.expected_calibration_error([[1.0]], [0], bins=0), "bins must be at least 1"),
        (lambda: metrics.crps([[0.0]], [[-1.0]], [0.0]), "stds must not be negative"),
        (lambda: metrics.crps([0.0], [1.0], [0.0]), "a mixture needs"),
        (lambda: metrics.crps_counts([[-1.0]], [0.0]), "rates must not be negative, got -1"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
