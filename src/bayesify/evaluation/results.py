"""One method's result on a test set, or its mean over seeds: what comparisons and reports are made from."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bayesify.evaluation.scored_predictions import uncertainty
from bayesify.training.loop import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bayesify.evaluation import Evaluation
    from bayesify.evaluation.baselines import Baseline
    from bayesify.methods import Method
    from bayesify.predictive import Predictive


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A fitted method, its scores, and its predictions for the known test set and for unknown inputs.

    Args:
        name: the method's name, such as `variational`.
        label: what a reader sees; results that are compared need different labels.
        method: the fitted method.
        evaluation: its scores, as `bf.evaluate` returns them.
        predictive: its predictions for the test inputs.
        targets: the test targets, in the order of `predictive`.
        unknown: its predictions for unknown inputs.
        cost: its training time over the plain network's.
        history: how training went.
        inputs: the test inputs as this method takes them, where methods prepare them differently.
        baselines: simple models on the same examples, as `train_baselines` returns them.
        unknown_check: what the run's check for unknown inputs accepts: `by`, `coverage`, `accepted`, and
            `unknown_accepted` where there are unknown inputs.

    Examples:
        >>> result = bf.report.MethodResult(
        ...     "variational", "Mine", bnn, bf.evaluate(bnn, (x, y)), bnn.predict(x), y, history=bnn.history
        ... )
        >>> result.evaluation.examples, len(result.history)
        (60, 5)

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
    baselines: Sequence[Baseline] = ()
    unknown_check: Mapping[str, Any] = field(default_factory=dict)

    def inputs_or(self, shared: Any) -> Any:
        """The inputs as this method takes them.

        Args:
            shared: the inputs of all methods, used where the result has no inputs.

        Returns:
            `inputs`, or `shared` where that is None.

        """
        return shared if self.inputs is None else self.inputs


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard error.

    Args:
        mean: over the seeds.
        standard_error: of the mean; None for a single seed.

    Examples:
        >>> bf.report.Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, standard_error=0.577...)

    """

    mean: float
    standard_error: float | None = None

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """The spread of one value for each seed.

        Args:
            values: one or more numbers.

        Returns:
            Their mean, and their standard deviation over the root of their number.

        """
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return Spread(statistics.fmean(values), error)


@dataclass(frozen=True)
class Seeds:
    """The results of every seed, or of every fold, the same methods in the same order each time."""

    runs: Sequence[Sequence[MethodResult]]
    unit: str = "seeds"

    @property
    def first(self) -> Sequence[MethodResult]:
        return self.runs[0]

    def by_method(self) -> list[tuple[MethodResult, ...]]:
        """The results of each method, seed by seed."""
        return list(zip(*self.runs, strict=True))


def check_comparable(results: Sequence[MethodResult]) -> list[MethodResult]:
    """The results, or a ValueError where they cannot be compared."""
    results = list(results)
    if not results:
        raise ValueError("a comparison needs at least one result, got none")
    labels = [result.label for result in results]
    if len(set(labels)) < len(labels):
        raise ValueError(f"results must have different labels, got {labels}")
    kinds = {result.predictive.kind for result in results}
    if len(kinds) > 1:
        raise ValueError(f"results must be of one kind, got {' and '.join(sorted(kinds))}")
    sizes = sorted({len(result.predictive) for result in results})
    if len(sizes) > 1:
        raise ValueError(f"results must be on the same test set, got sets of {sizes} examples")
    return results


def plain_result(results: Sequence[MethodResult]) -> MethodResult:
    """The plain network's result, or the first where there is none."""
    return next((result for result in results if result.method.name == "point"), results[0])


def list_by_label(values: Mapping[str, str]) -> str:
    """Values by label in a sentence: "0.5 (Ensemble), 0.7 (Variational)"; a single one stands without its label."""
    if len(values) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{value} ({label})" for label, value in values.items())


def uncertainties(result: MethodResult) -> tuple[Tensor, Tensor]:
    """How uncertain each known and each unknown input is, by the measure that the evaluation used."""
    assert result.unknown is not None
    by = result.evaluation.unknown_by or "entropy"
    return uncertainty(result.predictive, by), uncertainty(result.unknown, by)


def share_confident(result: MethodResult, at_least: float) -> float | None:
    """The share of the unknown inputs with a confidence of `at_least`; None for a regression."""
    if result.unknown is None or result.unknown.kind != "classification":
        return None
    return float(result.unknown.accept(at_least=at_least).double().mean())
