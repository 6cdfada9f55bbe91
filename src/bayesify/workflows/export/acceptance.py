"""Which predictions an exported graph accepts: a guarantee that was calibrated for the run, or a given threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bayesify.decisions import refusal_of
from bayesify.decisions.refusal import Refusal, promised
from bayesify.methods import Method

# Scores that a graph computes. The width of an interval needs a search, which is no tensor operation.
CLASS_SCORES = ("confidence", "entropy", "aleatoric", "epistemic", "expected_error", "std")
NUMBER_SCORES = ("std", "variance", "aleatoric", "epistemic")


@dataclass(frozen=True)
class Threshold:
    """A rule that is stored in a graph.

    Args:
        by: the score that is compared.
        value: the least confidence that is accepted; for other scores the largest uncertainty.
        max_error: the guaranteed share of wrong predictions among the accepted ones; None without a guarantee.
        confidence: how sure the guarantee is.

    """

    by: str
    value: float
    max_error: float | None = None
    confidence: float | None = None

    @property
    def rule(self) -> str:
        """The rule in words."""
        sign = ">=" if self.by == "confidence" else "<="
        promise = "" if self.max_error is None else f", which guarantees an error of at most {self.max_error:g}"
        return f"{self.by} {sign} {self.value:.6g}{promise}"

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON."""
        return asdict(self)


def promise_of(method: Method, max_error: float | None) -> Refusal | None:
    """The guarantee of a method that a graph can keep; None where there is none and none was asked for."""
    if max_error is None and not promised(method):
        return None
    return refusal_of(method, max_error)


def threshold_of(
    method: Method, at_least: float | None, at_most: float | None, promise: Refusal | None
) -> Threshold | None:
    """The threshold of a graph.

    Args:
        method: a fitted method.
        at_least: the least confidence, for classes.
        at_most: the largest standard deviation, for numbers.
        promise: used where neither is given.

    Returns:
        The threshold; None accepts every finite prediction.

    Raises:
        ValueError: a threshold of the wrong kind, or a guarantee about a score that no graph computes.

    """
    classes = method.likelihood.kind == "classification"
    if at_least is not None and at_most is not None:
        raise ValueError("at_least and at_most exclude each other: give one of them")
    if at_least is not None:
        if not classes:
            raise ValueError("at_least is a confidence, for classes, but this run predicts numbers: use at_most")
        if not 0 <= at_least <= 1:
            raise ValueError(f"at_least must be a confidence from 0 to 1, got {at_least!r}")
        return Threshold("confidence", float(at_least))
    if at_most is not None:
        if classes:
            raise ValueError("at_most is a standard deviation, for numbers, but this run predicts classes: at_least")
        if not at_most >= 0:
            raise ValueError(f"at_most must be a standard deviation of at least 0, got {at_most!r}")
        return Threshold("std", float(at_most))
    if promise is None:
        return None
    if promise.by not in (CLASS_SCORES if classes else NUMBER_SCORES):
        raise ValueError(
            f"the run was certified by {promise.by}, which a graph cannot compute: certify it by "
            f"{'confidence' if classes else 'std'}, or give a threshold"
        )
    return Threshold(promise.by, promise.threshold, promise.max_error, promise.confidence)
