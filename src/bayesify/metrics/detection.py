"""Scores of detecting unknown inputs by a number that should be higher for unknown than for known ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesify.metrics.arrays import Floats, Numbers, as_array

__all__ = ["aupr", "auroc", "fpr95"]


def auroc(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """Area under the ROC curve: the probability that an unknown example scores above a known one.

    Ties count half. The unknown examples are the positive class.

    Args:
        known_scores: scores of known examples, `[n]`.
        unknown_scores: scores of unknown examples, `[m]`; they should be higher.

    Returns:
        A number from 0 to 1; 0.5 is chance.

    Examples:
        >>> bf.metrics.auroc([0.1, 0.4], [0.4, 0.9])
        0.875

    Reference:
        T. Fawcett, "An introduction to ROC analysis", 2006.

    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_detection(known_scores, unknown_scores)))


def aupr(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """Area under the precision-recall curve, as average precision, with the unknown examples as the positive class.

    Args:
        known_scores: scores of known examples, `[n]`.
        unknown_scores: scores of unknown examples, `[m]`; they should be higher.

    Returns:
        A number from 0 to 1; random scores give the share of unknown examples.

    Examples:
        >>> round(bf.metrics.aupr([0.1, 0.5], [0.4, 0.9]), 4)
        0.8333

    Reference:
        J. Davis and M. Goadrich, "The relationship between precision-recall and ROC curves", 2006.

    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_detection(known_scores, unknown_scores)))


def fpr95(known_scores: Numbers, unknown_scores: Numbers) -> float:
    """False positive rate at 95% true positives.

    It is the share of known examples flagged by the highest threshold that flags at least 95% of the unknown ones.

    Args:
        known_scores: scores of known examples, `[n]`.
        unknown_scores: scores of unknown examples, `[m]`; they should be higher.

    Returns:
        A number from 0 (best) to 1.

    Examples:
        >>> bf.metrics.fpr95([0.1, 0.2, 0.5, 0.3], [0.4, 0.9])
        0.25

    Reference:
        S. Liang, Y. Li and R. Srikant, "Enhancing the reliability of out-of-distribution image detection in neural
        networks", 2018 (arXiv:1706.02690).

    """
    truth, scores = _detection(known_scores, unknown_scores)
    unknown = np.sort(scores[truth == 1])[::-1]
    threshold = unknown[-(-95 * len(unknown) // 100) - 1]
    return float((scores[truth == 0] >= threshold).mean())


def _detection(known_scores: Numbers, unknown_scores: Numbers) -> tuple[NDArray[np.int64], Floats]:
    known = as_array(known_scores, "known_scores").reshape(-1)
    unknown = as_array(unknown_scores, "unknown_scores").reshape(-1)
    return np.repeat([0, 1], [len(known), len(unknown)]), np.concatenate((known, unknown))
