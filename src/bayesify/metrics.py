"""How good the answers and their uncertainties are: numbers on plain tensors or arrays, each a Python float.

`probs` are `[n, classes]` with integer `targets` `[n]` (further dimensions before the classes are flattened),
`confidence` grows with certainty, `losses` are per example (an error is a loss of 1). Nothing broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Numbers = Tensor | NDArray[Any] | Sequence[Any]
_COUNTS_AT_A_TIME = 256


def accuracy(probs: Numbers, targets: Numbers) -> float:
    """Share of the examples whose most probable class is the right one.

    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    chances, labels = _classes(probs, targets)
    return float((chances.argmax(1) == labels).mean())


def nll(probs: Numbers, targets: Numbers) -> float:
    """Mean negative log-likelihood `-log p[y]` in nats; infinite if a right answer had no chance at all.

    >>> round(nll([[0.5, 0.5]], [1]), 4)
    0.6931

    Reference: I. J. Good, Rational decisions, 1952.
    """
    chances, labels = _classes(probs, targets)
    with np.errstate(divide="ignore"):
        return float(-np.log(chances[np.arange(len(labels)), labels]).mean())


def brier(probs: Numbers, targets: Numbers) -> float:
    """Squared distance between the probabilities and the truth, summed over classes: from 0 to 2.

    >>> round(brier([[0.8, 0.2]], [0]), 4)
    0.08

    Reference: G. W. Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    chances, labels = _classes(probs, targets)
    truth = np.eye(chances.shape[1])[labels]
    return float(np.square(chances - truth).sum(1).mean())


@dataclass(frozen=True)
class Reliability:
    """Bins of confidence, `[bins]` each: how sure, how often right (NaN where empty), and how many."""

    edges: Floats
    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64]


def reliability_curve(probs: Numbers, targets: Numbers, bins: int = 15) -> Reliability:
    """Confidence against accuracy in equal-width bins `(low, high]`; equal in every bin when calibrated.

    >>> reliability_curve([[0.9, 0.1], [0.7, 0.3]], [0, 1], bins=2).accuracy
    array([nan, 0.5])

    Reference: C. Guo et al., On calibration of modern neural networks, 2017.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    chances, labels = _classes(probs, targets)
    confidence, right = chances.max(1), chances.argmax(1) == labels
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(place, confidence, bins) / count
        mean_accuracy = np.bincount(place, right, bins) / count
    return Reliability(edges, mean_confidence, mean_accuracy, count)


def expected_calibration_error(probs: Numbers, targets: Numbers, bins: int = 15) -> float:
    """The mean gap `|accuracy - confidence|` over equal-width bins of confidence, weighted by their counts.

    >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 4)
    0.4

    Reference: M. Naeini et al., Obtaining well calibrated probabilities using Bayesian binning, 2015.
    """
    curve = reliability_curve(probs, targets, bins)
    filled = curve.count > 0
    gaps = np.abs(curve.accuracy[filled] - curve.confidence[filled])
    return float(np.average(gaps, weights=curve.count[filled]))


def aurc(confidence: Numbers, losses: Numbers) -> float:
    """Area under risk over coverage: the mean over k of the mean loss of the k most confident examples.

    Equal confidences are taken in random order, and the expectation over that order is returned, so that the
    order of the input does not matter.

    >>> round(aurc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
    0.1111

    Reference: Y. Geifman and R. El-Yaniv, Selective classification for deep neural networks, 2017.
    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals / np.arange(1, len(totals) + 1)).mean())


def excess_aurc(confidence: Numbers, losses: Numbers) -> float:
    """E-AURC: the AURC above that of the best possible order, which takes the smallest losses first.

    >>> excess_aurc([0.9, 0.8, 0.7], [0, 0, 1])
    0.0

    Reference: Y. Geifman et al., Bias-reduced uncertainty estimation for deep neural classifiers, 2019.
    """
    _, loss = paired(confidence, losses, "confidence", "losses")
    return max(0.0, aurc(confidence, losses) - aurc(-loss, loss))


def augrc(confidence: Numbers, losses: Numbers) -> float:
    """Area under generalised risk over coverage: the chance that an answer is both accepted and wrong.

    The generalised risk is the total accepted loss over all n examples; trapezoids between its points make
    ties count by halves, and `augrc = (1 - AUROC) * acc * (1 - acc) + (1 - acc)^2 / 2` hold for errors.

    >>> round(augrc([0.9, 0.8, 0.7], [0, 0, 1]), 4)
    0.0556

    Reference: J. Traub et al., Overcoming common flaws in the evaluation of selective classification, 2024.
    """
    totals = accepted_losses(*paired(confidence, losses, "confidence", "losses"))
    return float((totals.sum() - 0.5 * totals[-1]) / len(totals) ** 2)


def auroc(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """The chance that an unknown example scores above a known one, ties counting half; unknown is positive.

    >>> auroc([0.1, 0.4], [0.4, 0.9])
    0.875

    Reference: T. Fawcett, An introduction to ROC analysis, 2006.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_detection(known_scores, unknown_scores)))


def aupr(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """Average precision of finding the unknown (positive) by high scores; its floor is their share.

    >>> round(aupr([0.1, 0.5], [0.4, 0.9]), 4)
    0.8333

    Reference: J. Davis and M. Goadrich, The relationship between precision-recall and ROC curves, 2006.
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_detection(known_scores, unknown_scores)))


def fpr95(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """The share of known examples flagged by the highest threshold that flags at least 95% of the unknown.

    >>> fpr95([0.1, 0.2, 0.5, 0.3], [0.4, 0.9])
    0.25

    Reference: S. Liang et al., Enhancing the reliability of out-of-distribution image detection, 2018.
    """
    truth, scores = _detection(known_scores, unknown_scores)
    unknown = np.sort(scores[truth == 1])[::-1]
    threshold = unknown[-(-95 * len(unknown) // 100) - 1]
    return float((scores[truth == 0] >= threshold).mean())


def rmse(mean: Numbers, targets: Numbers) -> float:
    """Root of the mean squared error, in the units of the targets.

    >>> rmse([1.0, 2.0], [4.0, 2.0])
    2.1213203435596424
    """
    prediction, truth = paired(mean, targets, "mean", "targets")
    return float(np.sqrt(np.square(prediction - truth).mean()))


def mae(mean: Numbers, targets: Numbers) -> float:
    """Mean absolute error, in the units of the targets.

    >>> mae([1.0, 2.0], [4.0, 2.0])
    1.5
    """
    prediction, truth = paired(mean, targets, "mean", "targets")
    return float(np.abs(prediction - truth).mean())


def crps(means: Numbers, stds: Numbers, targets: Numbers) -> float:
    """Continuous ranked probability score of equal mixtures of normals, `means` and `stds` `[draws, n]`.

    `mean_i A(y - m_i, s_i^2) - mean_ij A(m_i - m_j, s_i^2 + s_j^2) / 2`, `A(m, v) = E|X|` for `X ~ N(m, v)`:
    the expected distance to the target less half the expected distance between two draws, in the targets'
    units. Work grows with the square of the draws.

    >>> round(crps([[0.0]], [[1.0]], [0.0]), 4)
    0.2337

    Reference: E. P. Grimit et al., The continuous ranked probability score for circular variables, 2006.
    """
    m, s, y = _mixture(means, stds, targets)
    if not bool((s >= 0).all()):
        raise ValueError(f"stds must not be negative, got {float(s.min())}")
    draws = len(m)
    between = _distance(torch.zeros_like(m), s.square() * 2)
    # A shift by k pairs every draw with the one k before it; shifts k and draws - k give the same pairs.
    for shift in range(1, draws // 2 + 1):
        pairs = _distance(m - m.roll(shift, 0), s.square() + s.square().roll(shift, 0))
        between = between + (pairs if 2 * shift == draws else 2 * pairs)
    scores = _distance(y - m, s.square()).mean(0) - 0.5 * between.sum(0) / draws**2
    return float(scores.mean())


def crps_counts(rates: Numbers, targets: Numbers) -> float:
    """Continuous ranked probability score of equal mixtures of Poissons, `rates` `[draws, n]`.

    `sum over k >= 0 of (F(k) - [y <= k])^2`, with F the mixture's distribution function; the sum stops where
    every target lies below k and `1 - F(k) < 1e-9`.

    >>> round(crps_counts([[1.0]], [1.0]), 4)
    0.212

    Reference: T. Gneiting and A. Raftery, Strictly proper scoring rules, prediction, and estimation, 2007.
    """
    rate, _, y = _mixture(rates, rates, targets)
    total, first = torch.zeros_like(y), 0
    while True:
        counts = torch.arange(first, first + _COUNTS_AT_A_TIME, dtype=y.dtype)
        below = torch.stack([torch.special.gammaincc(counts + 1, each[:, None]) for each in rate]).mean(0)
        total += (below - (y[:, None] <= counts).to(y.dtype)).square().sum(1)
        first += _COUNTS_AT_A_TIME
        if float(y.max()) < first and float(below[:, -1].min()) > 1 - 1e-9:
            return float(total.mean())


def interval_coverage(lower: Numbers, upper: Numbers, targets: Numbers) -> float:
    """Share of the targets inside `[lower, upper]`; compare with the interval's level.

    >>> interval_coverage([0.0, 0.0], [1.0, 1.0], [0.5, 2.0])
    0.5

    Reference: T. Gneiting et al., Probabilistic forecasts, calibration and sharpness, 2007.
    """
    low, truth = paired(lower, targets, "lower", "targets")
    high, _ = paired(upper, targets, "upper", "targets")
    return float(((low <= truth) & (truth <= high)).mean())


def accepted_losses(confidence: Floats, losses: Floats) -> Floats:
    """Expected total loss of the k most confident examples for k = 1 ... n; inside a tie it grows evenly."""
    _, group = np.unique(-confidence, return_inverse=True)
    sizes = np.bincount(group)
    return np.cumsum(np.repeat(np.bincount(group, losses) / sizes, sizes))


def paired(first: Numbers, second: Numbers, first_name: str, second_name: str) -> tuple[Floats, Floats]:
    """Both as flat arrays of one length, or a ValueError: shapes must agree but for dimensions of size 1."""
    a, b = as_array(first, first_name), as_array(second, second_name)
    if not _alike(a.shape, b.shape):
        shapes = f"{list(a.shape)} and {list(b.shape)}"
        raise ValueError(f"{first_name} and {second_name} must have the same shape, got {shapes}")
    return a.reshape(-1), b.reshape(-1)


def as_array(values: Numbers, name: str) -> Floats:
    """Any tensor, array or list as float64, or a ValueError where it is empty or holds NaN."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
    if np.isnan(array).any():
        raise ValueError(f"{name} must not hold NaN, got {int(np.isnan(array).sum())} of {array.size}")
    return array


def _distance(mean: Tensor, variance: Tensor) -> Tensor:
    """`E|X|` for `X ~ N(mean, variance)`; a variance of zero is a fixed number."""
    std = variance.sqrt()
    z = torch.where(std > 0, mean / std, math.inf * mean.sign()).nan_to_num(0.0, math.inf, -math.inf)
    distance: Tensor = mean * torch.erf(z * math.sqrt(0.5)) + std * math.sqrt(2 / math.pi) * torch.exp(
        -0.5 * z * z
    )
    return distance


def _mixture(means: Numbers, stds: Numbers, targets: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    m, s, y = as_array(means, "means"), as_array(stds, "stds"), as_array(targets, "targets")
    if m.ndim < 2 or m.shape != s.shape or m[0].size != y.size or not _alike(m.shape[1:], y.shape):
        shapes = f"{list(m.shape)}, {list(s.shape)} and {list(y.shape)}"
        raise ValueError(f"a mixture needs means and stds [draws, n] for targets [n], got {shapes}")
    flat_m, flat_s = (torch.from_numpy(array.reshape(len(m), -1)) for array in (m, s))
    return flat_m, flat_s, torch.from_numpy(y.reshape(-1))


def _classes(probs: Numbers, targets: Numbers) -> tuple[Floats, NDArray[np.int64]]:
    chances, labels = as_array(probs, "probs"), as_array(targets, "targets")
    if chances.ndim < 2 or not _alike(chances.shape[:-1], labels.shape):
        shapes = f"{list(chances.shape)} and {list(labels.shape)}"
        raise ValueError(f"probs must be [n, classes] for targets [n], got {shapes}")
    if chances.min() < 0 or chances.max() > 1 + 1e-4:
        raise ValueError(f"probs must lie between 0 and 1, got {chances.min():g} to {chances.max():g}")
    if (labels != np.floor(labels)).any() or labels.min() < 0 or labels.max() >= chances.shape[-1]:
        wanted = f"integers from 0 to {chances.shape[-1] - 1}"
        raise ValueError(f"targets must be {wanted}, got {labels.min():g} to {labels.max():g}")
    return chances.reshape(-1, chances.shape[-1]), labels.reshape(-1).astype(np.int64)


def _detection(known_scores: Numbers, unknown_scores: Numbers) -> tuple[NDArray[np.int64], Floats]:
    known = as_array(known_scores, "known_scores").reshape(-1)
    unknown = as_array(unknown_scores, "unknown_scores").reshape(-1)
    return np.repeat([0, 1], [len(known), len(unknown)]), np.concatenate((known, unknown))


def _alike(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return [size for size in first if size != 1] == [size for size in second if size != 1]
