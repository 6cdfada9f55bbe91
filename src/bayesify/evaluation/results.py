"""One method's result on a test set, or its mean over seeds: what every part of a comparison is made from."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bayesify.training.loop import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bayesify.evaluation import Evaluation
    from bayesify.methods import Method
    from bayesify.predictive import Predictive


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A fitted method, its scores, and its predictives on the known test set and on unknown inputs.

    `label` is what a reader sees and must differ between results; `cost` is the training time over the plain
    network's; `targets` belong to `predictive`, and so do `inputs`, as this method takes them, where methods
    prepare them each in its own way.
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
    inputs: Tensor | None = None

    def inputs_or(self, shared: Any) -> Any:
        """The inputs as this method takes them: its own, or those that all methods share."""
        return shared if self.inputs is None else self.inputs


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard error, which one seed cannot tell."""

    mean: float
    standard_error: float | None = None

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return Spread(statistics.fmean(values), error)


@dataclass(frozen=True)
class Seeds:
    """The results of every seed, the same methods in the same order each time."""

    runs: Sequence[Sequence[MethodResult]]

    @property
    def first(self) -> Sequence[MethodResult]:
        return self.runs[0]

    def by_method(self) -> list[tuple[MethodResult, ...]]:
        """The results of each method, seed by seed."""
        return list(zip(*self.runs, strict=True))


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


def told(values: Mapping[str, str]) -> str:
    """Values by label in a sentence: "0.5 (Ensemble), 0.7 (Variational)"; a single one needs no name."""
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} ({label})" for label, value in values.items())


def doubts(result: MethodResult) -> tuple[Tensor, Tensor]:
    """How much each known and each unknown input is doubted, by the score that the evaluation went by."""
    assert result.unknown is not None
    by = result.evaluation.unknown_by or "entropy"
    known, unknown = (
        -part.certainty(by).double().reshape(len(part), -1).mean(1) for part in (result.predictive, result.unknown)
    )
    return known, unknown


def share_sure(result: MethodResult, at_least: float) -> float | None:
    """The share of the unknown inputs that are answered all the same; of a regression there is none."""
    if result.unknown is None or result.unknown.kind != "classification":
        return None
    return float(result.unknown.accept(at_least=at_least).double().mean())
