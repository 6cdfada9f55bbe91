"""One method's result on a test set: what every part of a comparison is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bayesify.plots import style
from bayesify.training.loop import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bayesify.evaluation import Evaluation
    from bayesify.methods import Method
    from bayesify.plots.style import Look
    from bayesify.predictive import Predictive


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A fitted method, its scores, and its predictives on the known test set and on unknown inputs.

    `label` is what a reader sees and must differ between results; `cost` is the training time over the plain
    network's; `targets` belong to `predictive`.
    """

    name: str
    label: str
    method: Method
    evaluation: Evaluation
    predictive: Predictive
    targets: Tensor
    unknown: Predictive | None = None
    cost: float | None = None
    history: History = field(default_factory=History)


def checked(results: Sequence[MethodResult]) -> list[MethodResult]:
    """The results, or a ValueError where they cannot be compared."""
    given = list(results)
    if not given:
        raise ValueError("a comparison needs at least one result, got none")
    labels = [result.label for result in given]
    if len(set(labels)) < len(labels):
        raise ValueError(f"results must have different labels, got {labels}")
    kinds = {result.predictive.kind for result in given}
    if len(kinds) > 1:
        raise ValueError(f"results must be of one kind, got {' and '.join(sorted(kinds))}")
    sizes = sorted({len(result.predictive) for result in given})
    if len(sizes) > 1:
        raise ValueError(f"results must be on the same test set, got sets of {sizes} examples")
    return given


def plain_result(results: Sequence[MethodResult]) -> MethodResult:
    """The plain network's result, or the first where there is none."""
    return next((result for result in results if result.method.name == "point"), results[0])


def looks_of(results: Sequence[MethodResult]) -> Mapping[str, Look]:
    """A look for each label, by its method."""
    return style.looks([result.label for result in results], {result.label: result.method.name for result in results})
