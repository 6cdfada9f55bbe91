"""What an evaluation says about single classes, and the alert where one of them is never predicted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bayesify import metrics

if TYPE_CHECKING:
    from bayesify.evaluation.scored_predictions import ScoredPredictions
    from bayesify.evaluation.scores import Evaluation

# With more classes a confusion matrix is no longer read by anybody.
MOST_CLASSES = 50


def by_class(predictions: ScoredPredictions) -> dict[str, Any]:
    """Recall by class and the confusion matrix, as fields of `Evaluation`; nothing for a regression."""
    predictive = predictions.predictive
    classes = predictions.probs.shape[-1] if predictive.kind == "classification" else 0
    if not 2 <= classes <= MOST_CLASSES:
        return {}
    names = predictive.class_names or tuple(map(str, range(classes)))
    counts = metrics.confusion_matrix(predictions.probs, predictions.targets)
    shares = metrics.recall_by_class(predictions.probs, predictions.targets)
    recall = {name: None if math.isnan(share) else float(share) for name, share in zip(names, shares, strict=True)}
    return {"recall": recall, "confusion": counts.tolist()}


def never_predicted(evaluation: Evaluation) -> str | None:
    """A sentence where a class of the test examples is never predicted.

    Args:
        evaluation: the scores of a classifier.

    Returns:
        The sentence, or None.

    Examples:
        >>> from bayesify.evaluation.imbalance import never_predicted
        >>> never_predicted(bf.evaluate(bnn, (x, y))) is None
        True

    """
    if evaluation.confusion is None or evaluation.recall is None:
        return None
    predicted = [sum(row[column] for row in evaluation.confusion) for column in range(len(evaluation.confusion))]
    there = [sum(row) for row in evaluation.confusion]
    absent = [
        f"{name!r} ({count:,} of {evaluation.examples:,} examples)"
        for name, count, times in zip(evaluation.recall, there, predicted, strict=True)
        if count and not times
    ]
    if not absent:
        return None
    listed = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
    rate = "" if evaluation.base_rate is None else f"; the commonest class alone is {evaluation.base_rate:.1%} of them"
    return f"never predicts {listed}{rate}: try class weights (--class-weights balanced) or more examples"
