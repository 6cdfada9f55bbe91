"""Score a method on data: read it in any of its forms, predict, and hand both to `evaluation.score`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.evaluation import Evaluation, score
from bayesify.training.examples import as_examples

if TYPE_CHECKING:
    from bayesify.methods import Method


def evaluate(
    method: Method, data: Any, ood: Any = None, draws: int = 100, seed: int = 0, by: str = "draws", score_by: str | None = None
) -> Evaluation:
    """Every score of a method on `data` and, with `ood` inputs, how well it tells them apart.

    Args:
        method: a fitted method.
        data: `(x, y)`, a `Dataset` or a `DataLoader`.
        ood: inputs of a kind never seen in training.
        draws: functions drawn for the predictive.
        seed: of the draws.
        by: `draws`, or `mean` for the posterior's mean weights.
        score_by: what ranks certainty, where not the default.

    """
    x, y = read_targets(method, data)
    predictive = method.predict(x, draws=draws, seed=seed, by=by)
    unknown = None if ood is None else method.predict(ood, draws=draws, seed=seed, by=by)
    return score(predictive, y.to(predictive.outputs.device), unknown, score_by)


def read_targets(method: Method, data: Any) -> tuple[Any, Tensor]:
    """Inputs and targets of a whole data set, in order."""
    examples = as_examples(data, method.likelihood, method.network.dtype, n_data=_length(data))
    parts = list(examples.in_order(1000))
    x = pytree.tree_map(lambda *leaves: torch.cat(leaves), *[part[0] for part in parts])
    return x, torch.cat([part[1] for part in parts])


def _length(data: Any) -> int | None:
    # Scoring does not use the number of examples, so a loader that cannot tell is no obstacle.
    return None if isinstance(data, tuple | list) or hasattr(data, "__len__") else 1
