"""Scores of class probabilities `[n, classes]` against labels `[n]`: how often right, how likely, how calibrated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesify.metrics.arrays import Floats, Numbers, alike, as_array

__all__ = ["Reliability", "accuracy", "brier", "expected_calibration_error", "nll", "reliability_curve"]


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


def _classes(probs: Numbers, targets: Numbers) -> tuple[Floats, NDArray[np.int64]]:
    chances, labels = as_array(probs, "probs"), as_array(targets, "targets")
    if chances.ndim < 2 or not alike(chances.shape[:-1], labels.shape):
        shapes = f"{list(chances.shape)} and {list(labels.shape)}"
        raise ValueError(f"probs must be [n, classes] for targets [n], got {shapes}")
    if chances.min() < 0 or chances.max() > 1 + 1e-4:
        raise ValueError(f"probs must lie between 0 and 1, got {chances.min():g} to {chances.max():g}")
    if (labels != np.floor(labels)).any() or labels.min() < 0 or labels.max() >= chances.shape[-1]:
        wanted = f"integers from 0 to {chances.shape[-1] - 1}"
        raise ValueError(f"targets must be {wanted}, got {labels.min():g} to {labels.max():g}")
    return chances.reshape(-1, chances.shape[-1]), labels.reshape(-1).astype(np.int64)
