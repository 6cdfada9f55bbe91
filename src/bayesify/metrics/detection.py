"""Scores of telling unknown inputs from known ones by a number that should be higher for the unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesify.metrics.arrays import Floats, Numbers, as_array

__all__ = ["aupr", "auroc", "fpr95"]


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


def _detection(known_scores: Numbers, unknown_scores: Numbers) -> tuple[NDArray[np.int64], Floats]:
    known = as_array(known_scores, "known_scores").reshape(-1)
    unknown = as_array(unknown_scores, "unknown_scores").reshape(-1)
    return np.repeat([0, 1], [len(known), len(unknown)]), np.concatenate((known, unknown))
