"""Scores of class probabilities `[n, classes]` against labels `[n]`: accuracy, likelihood and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesify.metrics.arrays import Floats, Numbers, as_array, same_shape

__all__ = [
    "Reliability",
    "accuracy",
    "brier",
    "consistency_band",
    "expected_calibration_error",
    "nll",
    "reliability_curve",
]


def accuracy(probs: Numbers, targets: Numbers) -> float:
    """Share of the examples whose most probable class is the right one.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0 to 1.

    Examples:
        >>> bf.metrics.accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5

    """
    probabilities, labels = labelled(probs, targets)
    return float((probabilities.argmax(1) == labels).mean())


def nll(probs: Numbers, targets: Numbers) -> float:
    """Mean negative log-likelihood, `mean_i -log p_i[y_i]`, in nats.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0; infinite if a true class had probability 0.

    Examples:
        >>> round(bf.metrics.nll([[0.5, 0.5]], [1]), 4)
        0.6931

    Reference:
        I. J. Good, "Rational decisions", 1952.

    """
    probabilities, labels = labelled(probs, targets)
    with np.errstate(divide="ignore"):
        return float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())


def brier(probs: Numbers, targets: Numbers) -> float:
    """Brier score, `mean_i sum_k (p_i[k] - [y_i = k])^2`.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0 (best) to 2.

    Examples:
        >>> round(bf.metrics.brier([[0.8, 0.2]], [0]), 4)
        0.08

    Reference:
        G. W. Brier, "Verification of forecasts expressed in terms of probability", 1950.

    """
    probabilities, labels = labelled(probs, targets)
    truth = np.eye(probabilities.shape[1])[labels]
    return float(np.square(probabilities - truth).sum(1).mean())


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy in bins of confidence, as `reliability_curve` returns them.

    Args:
        edges: the edges of the bins, `[bins + 1]`, from 0 to 1.
        confidence: mean confidence in each bin, `[bins]`; NaN in an empty bin.
        accuracy: share of right predictions in each bin, `[bins]`; NaN in an empty bin.
        count: number of examples in each bin, `[bins]`.

    Examples:
        >>> curve = bf.metrics.reliability_curve(bnn.predict(x).probs, y, bins=5)
        >>> curve.edges.shape, curve.accuracy.shape, curve.count.sum()
        ((6,), (5,), ...60...)

    """

    edges: Floats
    confidence: Floats
    accuracy: Floats
    count: NDArray[np.int64]


def reliability_curve(probs: Numbers, targets: Numbers, bins: int = 15) -> Reliability:
    """Confidence against accuracy in equal-width bins `(low, high]` of confidence.

    The two are equal in every bin when the predictions are calibrated.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.
        bins: number of bins between 0 and 1.

    Returns:
        A `Reliability` with the edges, mean confidence, accuracy and count of the bins.

    Examples:
        >>> bf.metrics.reliability_curve([[0.9, 0.1], [0.7, 0.3]], [0, 1], bins=2).accuracy
        array([nan, 0.5])

    Reference:
        C. Guo, G. Pleiss, Y. Sun and K. Weinberger, "On calibration of modern neural networks", 2017
        (arXiv:1706.04599).

    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    probabilities, labels = labelled(probs, targets)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(place, confidence, bins) / count
        mean_accuracy = np.bincount(place, right, bins) / count
    return Reliability(edges, mean_confidence, mean_accuracy, count)


def consistency_band(
    probs: Numbers, bins: int = 15, level: float = 0.95, repeats: int = 1000, seed: int = 0
) -> tuple[Floats, Floats]:
    """Where the accuracy of each bin of a reliability diagram lies if the predictions are calibrated.

    Labels are drawn with the predicted confidences again and again. Points outside the band are evidence of bad
    calibration, points inside are not.

    Args:
        probs: class probabilities, `[n, classes]`.
        bins: number of bins of confidence between 0 and 1.
        level: share of the draws inside the band of each bin.
        repeats: number of draws.
        seed: of the draws.

    Returns:
        Lower and upper end, `[bins]` each; NaN in an empty bin.

    Examples:
        >>> lower, upper = bf.metrics.consistency_band(bnn.predict(x).probs, bins=5)
        >>> lower.shape, bool((lower[-1] <= upper[-1]))
        ((5,), True)

    Reference:
        J. Broecker and L. Smith, "Increasing the reliability of reliability diagrams", 2007.

    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    probabilities = as_array(probs, "probs")
    probabilities = probabilities.reshape(-1, probabilities.shape[-1])
    curve = reliability_curve(probabilities, probabilities.argmax(1), bins)
    confidence = probabilities.max(1)
    place = np.clip(np.searchsorted(curve.edges, confidence, side="left") - 1, 0, bins - 1)
    generator = np.random.default_rng(seed)
    lower, upper = np.full(bins, np.nan), np.full(bins, np.nan)
    for number in np.flatnonzero(curve.count):
        inside = confidence[place == number]
        # In pieces: all draws of a large bin would not fit in memory.
        pieces = [
            generator.random((repeats, len(part))) < part for part in np.array_split(inside, -(-len(inside) // 4096))
        ]
        accuracy = sum(piece.sum(1) for piece in pieces) / len(inside)
        lower[number], upper[number] = np.quantile(accuracy, [(1 - level) / 2, (1 + level) / 2])
    return lower, upper


def expected_calibration_error(probs: Numbers, targets: Numbers, bins: int = 15) -> float:
    """Expected calibration error, `sum_b n_b / n |accuracy_b - confidence_b|` over equal-width bins of confidence.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.
        bins: number of bins between 0 and 1.

    Returns:
        A number from 0 (calibrated) to 1.

    Examples:
        >>> round(bf.metrics.expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 4)
        0.4

    Reference:
        M. P. Naeini, G. Cooper and M. Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning",
        2015.

    """
    curve = reliability_curve(probs, targets, bins)
    filled = curve.count > 0
    gaps = np.abs(curve.accuracy[filled] - curve.confidence[filled])
    return float(np.average(gaps, weights=curve.count[filled]))


def labelled(probs: Numbers, targets: Numbers) -> tuple[Floats, NDArray[np.int64]]:
    """Checked probabilities `[n, classes]` and labels `[n]`; further dimensions are flattened."""
    probabilities, labels = as_array(probs, "probs"), as_array(targets, "targets")
    if probabilities.ndim < 2 or not same_shape(probabilities.shape[:-1], labels.shape):
        shapes = f"{list(probabilities.shape)} and {list(labels.shape)}"
        raise ValueError(f"probs must be [n, classes] for targets [n], got {shapes}")
    if probabilities.min() < 0 or probabilities.max() > 1 + 1e-4:
        raise ValueError(f"probs must lie between 0 and 1, got {probabilities.min():g} to {probabilities.max():g}")
    if (labels != np.floor(labels)).any() or labels.min() < 0 or labels.max() >= probabilities.shape[-1]:
        wanted = f"integers from 0 to {probabilities.shape[-1] - 1}"
        raise ValueError(f"targets must be {wanted}, got {labels.min():g} to {labels.max():g}")
    return probabilities.reshape(-1, probabilities.shape[-1]), labels.reshape(-1).astype(np.int64)
