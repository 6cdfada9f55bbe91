"""Scores that a rare class cannot hide behind: recall by class, confusion, areas under ROC curves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesify.metrics.arrays import Numbers, as_array
from bayesify.metrics.classification import labelled

__all__ = ["balanced_accuracy", "base_rate", "confusion_matrix", "recall_by_class", "roc_auc"]


def base_rate(targets: Numbers) -> float:
    """Share of the commonest class: the accuracy of always predicting it.

    Args:
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0 to 1.

    Examples:
        >>> bf.metrics.base_rate([0, 0, 0, 1])
        0.75

    """
    labels = as_array(targets, "targets").reshape(-1).astype(np.int64)
    return float(np.bincount(labels).max() / len(labels))


def confusion_matrix(probs: Numbers, targets: Numbers) -> NDArray[np.int64]:
    """Numbers of examples by their true class (rows) and their predicted class (columns).

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        Counts, `[classes, classes]`.

    Examples:
        >>> bf.metrics.confusion_matrix([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1]).tolist()
        [[1, 0], [1, 1]]

    """
    probabilities, labels = labelled(probs, targets)
    classes = probabilities.shape[1]
    places = labels * classes + probabilities.argmax(1)
    return np.bincount(places, minlength=classes * classes).reshape(classes, classes)


def recall_by_class(probs: Numbers, targets: Numbers) -> NDArray[np.float64]:
    """For each class the share of its examples that are predicted right.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        Shares, `[classes]`; NaN for a class without examples.

    Examples:
        >>> bf.metrics.recall_by_class([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1]).tolist()
        [1.0, 0.5]

    """
    counts = confusion_matrix(probs, targets)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.diag(counts) / counts.sum(1))


def balanced_accuracy(probs: Numbers, targets: Numbers) -> float:
    """Mean recall over the classes that have examples: every class counts the same.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0 to 1; always predicting one of k classes gives 1 / k.

    Examples:
        >>> bf.metrics.balanced_accuracy([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        0.75

    """
    return float(np.nanmean(recall_by_class(probs, targets)))


def roc_auc(probs: Numbers, targets: Numbers) -> float:
    """Area under the ROC curve of each class against the others, averaged over the classes.

    It is the chance that a random example of a class has a higher probability of it than one of another class.

    Args:
        probs: class probabilities, `[n, classes]`.
        targets: true classes, `[n]` integers.

    Returns:
        A number from 0 to 1, 0.5 for chance; NaN where all examples are of one class.

    Examples:
        >>> bf.metrics.roc_auc([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0, 1])
        1.0

    """
    from sklearn.metrics import roc_auc_score

    probabilities, labels = labelled(probs, targets)
    areas = []
    for number in range(probabilities.shape[1]):
        inside = labels == number
        if inside.any() and not inside.all():
            areas.append(float(roc_auc_score(inside, probabilities[:, number])))
    return float(np.mean(areas)) if areas else float("nan")
