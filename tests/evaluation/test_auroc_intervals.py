"""AUROC intervals against resampling and against another implementation."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bayesify.evaluation.auroc_intervals import auroc_difference, auroc_interval


def scores(seed, known=300, unknown=200, gap=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=known).round(1), rng.normal(gap, 1, unknown).round(1)  # rounded: there are ties


def test_the_area_is_sklearns():
    known, unknown = scores(0)
    area, low, high = auroc_interval(known, unknown)
    assert area == pytest.approx(roc_auc_score(np.repeat([0, 1], [300, 200]), np.concatenate((known, unknown))))
    assert 0 < low < area < high < 1


def test_the_interval_holds_the_true_area_as_often_as_it_says():
    from scipy.stats import norm

    truth, trials = norm.cdf(1 / np.sqrt(2)), 400
    inside = 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        _, low, high = auroc_interval(rng.normal(size=80), rng.normal(1, 1, 60))
        inside += low <= truth <= high
    # 95% of 400: standard error 1.1 points, z = 3.5.
    assert abs(inside / trials - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / trials)


def test_a_paired_difference_has_the_error_of_resampling():
    rng = np.random.default_rng(1)
    known, unknown = scores(1)
    other_known, other_unknown = known + rng.normal(size=300), unknown + rng.normal(size=200)
    gain, error = auroc_difference(known, unknown, other_known, other_unknown)
    assert gain == pytest.approx(auroc_interval(known, unknown)[0] - auroc_interval(other_known, other_unknown)[0])
    resampled = []
    for _ in range(600):
        i, j = rng.integers(300, size=300), rng.integers(200, size=200)
        resampled.append(auroc_difference(known[i], unknown[j], other_known[i], other_unknown[j])[0])
    # A standard deviation of 600 values is known to 1 / sqrt(1200) of itself: z = 4.
    assert error == pytest.approx(np.std(resampled), rel=4 / np.sqrt(1200) + 0.02)


def test_perfect_separation_and_single_examples_stay_within_bounds():
    assert auroc_interval([0, 1, 2], [3, 4, 5]) == (1.0, 0.0, 1.0)
    area, low, high = auroc_interval(np.arange(1000), np.arange(1000) + 2000)
    assert (area, high) == (1.0, 1.0)
    assert low == pytest.approx(0.997)
    assert auroc_interval(np.arange(1000) + 2000, np.arange(1000))[:2] == (0.0, 0.0)
    area, low, high = auroc_interval([1.0], [1.0])
    assert area == 0.5
    assert 0 <= low < 0.5 < high <= 1


def test_other_examples_cannot_be_paired():
    with pytest.raises(ValueError, match="same examples"):
        auroc_difference([0, 1], [1, 2], [0, 1, 2], [1, 2])
