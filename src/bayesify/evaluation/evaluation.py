"""Score a method on data, or a predictive against its targets."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.evaluation.imbalance import by_class
from bayesify.evaluation.scored_predictions import ScoredPredictions
from bayesify.evaluation.scores import SCORES, Evaluation
from bayesify.evaluation.streamed import StreamedPredictive, to_one_shape
from bayesify.likelihoods.labels import Labels
from bayesify.predictive import Predictive
from bayesify.training.batches import alike, join
from bayesify.training.users_data import batches_for_scoring

if TYPE_CHECKING:
    from bayesify.methods import Method


def score(predictive: Predictive, targets: Any, ood: Predictive | None = None, score: str | None = None) -> Evaluation:
    """Evaluate a predictive against its targets, and against predictions for unknown inputs.

    Each of a target's own dimensions counts as one example, except that `nll` sums over them and the scores of unknown
    inputs average over them.

    Args:
        predictive: predictions for n inputs.
        targets: their true classes or numbers.
        ood: predictions for unknown inputs, which should be less certain.
        score: what ranks the predictions and separates the unknown inputs. By default `confidence` ranks and `entropy`
            separates (regression: `variance` does both).

    Returns:
        The scores that apply.

    """
    predictions = ScoredPredictions(predictive, targets, ood, score)
    values: dict[str, Any] = {
        name: entry.measure(predictions)
        for name, entry in SCORES.items()
        if entry.measure is not None and predictive.kind in entry.kinds and (ood is not None or not entry.unknown)
    }
    return Evaluation(
        kind=predictive.kind,
        examples=len(predictive),
        draws=predictive.draws,
        ranked_by=predictions.curve.by,
        unknown_by=None if ood is None else predictions.unknown_by,
        auroc_by=predictions.auroc_by,
        **by_class(predictions),
        **values,
    )


_score = score  # `evaluate` has an argument of that name


def evaluate(
    method: Method,
    data: Any,
    ood: Any = None,
    draws: int = 100,
    seed: int = 0,
    by: str = "draws",
    score: str | None = None,
) -> Evaluation:
    """Every score of a method on `data` and, with `ood` inputs, how well its uncertainty separates them.

    Args:
        method: a fitted method.
        data: `(x, y)`, a `Dataset` or a `DataLoader`.
        ood: unknown inputs, of a kind never seen in training, in the form that the network takes. They come without
            targets: a tuple is one input of several parts.
        draws: posterior draws for each prediction.
        seed: of the draws.
        by: `draws`, or `mean` for the posterior's mean weights.
        score: what ranks the predictions and separates the unknown inputs. By default `confidence` ranks and `entropy`
            separates (regression: `variance` does both).

    Returns:
        The scores that apply; `print` shows them as a table.

    Examples:
        >>> result = bf.evaluate(bnn, (x, y), ood=x + 20, draws=20)
        >>> result.accuracy + result.error
        1.0
        >>> result.examples, result.draws, result.unknown_by
        (60, 20, 'entropy')

    """
    if method.likelihood.kind == "several":
        raise ValueError(
            "this method predicts several targets: score one at a time, "
            "score(bnn.predict(x)['class'], y['class']) of bayesify.evaluation"
        )
    settings: dict[str, Any] = {"draws": draws, "seed": seed, "by": by}
    batches = batches_for_scoring(data, method.likelihood, method.network.dtype, method.column_names)
    if alike(batches):
        x, y = join(batches)
        predictive = _predict(method, x, y, settings)
    else:
        parts = [targets for _, targets in batches]
        y = _padded_labels(method, parts)
        predictive = StreamedPredictive((method.predict(inputs, **settings) for inputs, _ in batches), parts)
    unknown = None if ood is None else _predict(method, ood, None, settings)
    return _score(predictive, y, unknown, score).with_checks(method)


def _predict(method: Method, x: Any, y: Tensor | None, settings: dict[str, Any]) -> Predictive:
    """The predictive of all inputs; where their draws take much memory, of one part after the other."""
    parts = method.predict_in_parts(x, **settings)
    first = next(parts, None)
    second = next(parts, None)
    if first is None or second is None:
        return method.predict(x, **settings) if first is None else first
    return StreamedPredictive(chain((first, second), parts), y)


def read_targets(method: Method, data: Any) -> tuple[Any, Tensor]:
    """Inputs and targets of a whole data set, in order."""
    return join(batches_for_scoring(data, method.likelihood, method.network.dtype, method.column_names))


def _padded_labels(method: Method, parts: list[Tensor]) -> Tensor:
    """The labels of batches of different lengths, with labels that are none in the places that are missing."""
    likelihood = method.likelihood
    if not isinstance(likelihood, Labels) or any(part.is_floating_point() for part in parts):
        raise ValueError("batches of different shapes can be scored for integer labels only: pad them to one length")
    return torch.cat(to_one_shape(parts, likelihood.ignore_index))
