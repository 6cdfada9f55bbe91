"""Guaranteed refusal: a threshold such that at most a given share of the accepted predictions is wrong.

With a confidence of `1 - risk` over the calibration data,

    P(prediction is wrong | it is accepted) <= max_error

for inputs drawn like the calibration examples. `decisions/sequential_tests.py` has the test.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from bayesify.decisions import sequential_tests
from bayesify.decisions.certificate import Certificate
from bayesify.decisions.provenance import (
    Provenance,
    TooFewExamplesError,
    check_method,
    checked_fields,
    one_target,
    provenance_from,
    read,
    share,
)
from bayesify.errors import RunError, choose, positive
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.predictive.predictive import CLASSIFICATION_SCORES, REGRESSION_SCORES


@dataclass(frozen=True)
class Refusal:
    """A threshold with a guarantee about the predictions that it accepts.

    Args:
        max_error: the guaranteed bound: the largest share of wrong predictions among the accepted ones.
        confidence: how sure the guarantee is.
        by: the score that is compared with the threshold.
        threshold: the least confidence that is accepted; for other scores the largest uncertainty.
        coverage: share of the calibration examples that is accepted.
        accepted: number of calibration examples that is accepted.
        errors: number of these that is wrong.
        bound: upper bound of the error of accepted predictions, at the same confidence.
        tolerance: for numbers, how far a prediction may be from the target before it is wrong.
        provenance: what the guarantee was made from.

    Examples:
        >>> x_held, y_held = x.repeat(10, 1), y.repeat(10)
        >>> refusal = bf.calibrate(bnn, (x_held, y_held), max_error=0.2)
        >>> refusal.accept(bnn.predict(x)).shape
        torch.Size([60])

    """

    max_error: float
    confidence: float
    by: str
    threshold: float
    coverage: float
    accepted: int
    errors: int
    bound: float
    tolerance: float | None
    provenance: Provenance

    def accept(self, predictive: Predictive) -> Tensor:
        """Which predictions the guarantee covers.

        Args:
            predictive: predictions with the draws and the seed of the calibration.

        Returns:
            True where a prediction is accepted, `[batch]` bool.

        Raises:
            ValueError: the prediction was made in another way than the calibration.

        """
        self.provenance.check(predictive)
        score = predictive.score(self.by)
        return score >= self.threshold if self.by == "confidence" else score <= self.threshold

    def wrong(self, predictive: Predictive, targets: Tensor) -> Tensor:
        """Which predictions are wrong in the sense of the guarantee.

        Args:
            predictive: predictions for n inputs.
            targets: their true labels or numbers.

        Returns:
            True where a prediction is wrong, `[batch]` bool.

        """
        return _wrong(predictive, targets, self.tolerance)

    @property
    def certificate(self) -> Certificate:
        """What is guaranteed, for which inputs, and from what."""
        what = "wrong" if self.tolerance is None else f"more than {self.tolerance:g} away from the target"
        rule = f"{self.by} {'>=' if self.by == 'confidence' else '<='} {self.threshold:.6g}"
        rule = "all are accepted" if self.threshold == _accepts_all(self.by) else rule
        promise = (
            f"At most {self.max_error:.3g} of the accepted predictions ({rule}) are {what}, "
            f"with {self.confidence:.3g} confidence."
        )
        found = (
            f"{self.accepted} of {self.provenance.examples} calibration examples are accepted (coverage "
            f"{self.coverage:.3f}), {self.errors} of them {'wrong' if self.tolerance is None else 'too far away'}."
        )
        return Certificate("refusal", promise, found, self.provenance)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON; `refusal_of` reads them from a run."""
        return asdict(self)

    def __repr__(self) -> str:
        return (
            f"Refusal(max_error={self.max_error:g}, confidence={self.confidence:g}, threshold={self.threshold:.6g} "
            f"on {self.by}, coverage={self.coverage:.3f})"
        )


def calibrate(
    bnn: Method,
    data: Any,
    max_error: float = 0.01,
    confidence: float = 0.95,
    *,
    by: str | None = None,
    tolerance: float | None = None,
    draws: int = 100,
    seed: int = 0,
    population: str | None = None,
) -> Refusal:
    """A threshold above which at most `max_error` of the predictions are wrong, with a given confidence.

    The guarantee is saved with the method. It holds for inputs drawn like the calibration examples, predicted with the
    same draws and seed; it needs that a stricter threshold does not have a higher error.

    Args:
        bnn: a fitted method, recalibrated before if it is to be.
        data: `(x, y)`, a `Dataset` or a `DataLoader` that played no part in training or in choosing the method.
        max_error: the largest share of wrong predictions among the accepted ones.
        confidence: the probability, over calibration data, that the guarantee is kept.
        by: the score of the threshold, as for `Predictive.score`: `confidence` for classes, `std` for numbers.
        tolerance: for numbers: a prediction is wrong if its mean is further than this from the target.
        draws: posterior draws for each prediction.
        seed: of the draws.
        population: the inputs that it is guaranteed for, in words, for the certificate.

    Returns:
        A `Refusal` with `threshold`, `coverage`, `accept(predictive)` and `certificate`.

    Raises:
        ValueError: the data does not support the guarantee; the message has the number of examples that it would take.

    References:
        A. Angelopoulos et al., "Learn then test: calibrating predictive algorithms to achieve risk control", 2021,
        arXiv:2110.01052. Y. Geifman and R. El-Yaniv, "Selective classification for deep neural networks", 2017,
        arXiv:1705.08500.

    Examples:
        >>> x_held, y_held = x.repeat(10, 1), y.repeat(10)
        >>> refusal = bf.calibrate(bnn, (x_held, y_held), max_error=0.2, confidence=0.9)
        >>> refusal.bound <= 0.2 and refusal.coverage > 0.3
        True

    """
    check_method(bnn)
    max_error, confidence = share("max_error", max_error), share("confidence", confidence)
    risk = 1 - confidence
    held_out = read(bnn, data, draws, seed, "draws")
    numbers = bnn.likelihood.kind == "regression"
    if numbers and tolerance is None:
        raise ValueError(
            "numbers are never exactly right: give tolerance= (--tolerance), or ask for intervals (conformal, --alpha)"
        )
    if not numbers and tolerance is not None:
        raise ValueError("tolerance is for numbers, this method predicts classes")
    tolerance = None if tolerance is None else positive("tolerance", tolerance)
    by = choose(
        "score", by or ("std" if numbers else "confidence"), REGRESSION_SCORES if numbers else CLASSIFICATION_SCORES
    )
    needed = sequential_tests.smallest_sample(max_error, risk)
    if len(held_out.y) < needed:
        raise TooFewExamplesError(
            f"max_error={max_error:g} with confidence {confidence:g} needs at least {needed:,} calibration examples, "
            f"got {len(held_out.y):,}"
        )
    pieces = [(part.certainty(by), _wrong(part, y, tolerance)) for part, y in held_out.predictives()]
    certainty = np.concatenate([piece.cpu().numpy() for piece, _ in pieces])
    wrong = np.concatenate([piece.cpu().numpy() for _, piece in pieces])
    found = sequential_tests.loosest(certainty, wrong, max_error, risk)
    if found is None:
        raise _unsupported(certainty, wrong, max_error, risk)
    refusal = Refusal(
        max_error=max_error,
        confidence=confidence,
        by=by,
        threshold=_threshold(certainty, found.count, by),
        coverage=found.count / len(wrong),
        accepted=found.count,
        errors=found.errors,
        bound=sequential_tests.upper_bound(found.count, found.errors, risk),
        tolerance=tolerance,
        provenance=held_out.provenance(population),
    )
    others = [other for other in promised(bnn) if (other.max_error, other.confidence) != (max_error, confidence)]
    bnn.guarantees["refusal"] = {
        "weights": refusal.provenance.weights,
        "promises": [promise.to_dict() for promise in (*others, refusal)],
    }
    return refusal


def promised(bnn: Method) -> list[Refusal]:
    """The refusals that were guaranteed for a method, the latest last."""
    saved = bnn.guarantees.get("refusal") or {"promises": []}
    listed = saved.get("promises") if isinstance(saved, dict) else None
    if not isinstance(listed, list):
        raise RunError("the saved refusals cannot be read: expected a list of guarantees")
    made = []
    for plain in listed:
        known = checked_fields(Refusal, plain)
        if known["by"] not in (*CLASSIFICATION_SCORES, *REGRESSION_SCORES):
            raise RunError(f"the saved refusals cannot be read: unknown score {known['by'][:40]!r}")
        made.append(Refusal(**known | {"provenance": provenance_from(known["provenance"])}))
    return made


def refusal_of(bnn: Method, max_error: float | None = None) -> Refusal:
    """The refusal that was guaranteed for a method.

    Args:
        bnn: a method, loaded from a run or calibrated in this session.
        max_error: the largest error that the guarantee may allow; None takes the latest guarantee.

    Returns:
        The refusal with the highest coverage among those that guarantee at most `max_error`.

    Raises:
        ValueError: there is none.

    """
    known = promised(bnn)
    if not known:
        raise ValueError("no error was guaranteed for this run: use bayesify certify RUN --max-error, or bf.calibrate")
    if max_error is None:
        return known[-1]
    fitting = [refusal for refusal in known if refusal.max_error <= share("max_error", max_error) + 1e-12]
    if not fitting:
        made = ", ".join(f"{refusal.max_error:g}" for refusal in known)
        raise ValueError(f"an error of at most {max_error:g} was not guaranteed for this run, only {made}: certify it")
    return max(fitting, key=lambda refusal: refusal.coverage)


def _wrong(predictive: Predictive, targets: Tensor, tolerance: float | None) -> Tensor:
    predicted = predictive.labels if predictive.kind == "classification" else predictive.mean
    if predicted.ndim != 1:
        raise ValueError(f"a refusal needs one target per input, this method predicts {list(predicted.shape[1:])}")
    targets = one_target(targets, len(predicted)).to(predicted.device)
    if predictive.kind == "classification":
        return predicted != targets
    assert tolerance is not None
    return (predicted - targets).abs() > tolerance


def _threshold(certainty: np.ndarray[Any, Any], count: int, by: str) -> float:
    """Accepts what is strictly more certain than the most certain example that is left out."""
    if count == len(certainty):
        return _accepts_all(by)
    left_out = np.sort(certainty)[::-1][count]
    least = np.nextafter(left_out, np.asarray(np.inf, certainty.dtype))
    return float(least) if by == "confidence" else -float(least)


def _accepts_all(by: str) -> float:
    """The threshold that every score meets."""
    return 0.0 if by == "confidence" else sys.float_info.max


def _unsupported(certainty: Any, wrong: Any, max_error: float, risk: float) -> ValueError:
    confidence = f"with confidence {1 - risk:g}"
    needed = sequential_tests.examples_needed(certainty, wrong, max_error, risk)
    smallest = sequential_tests.smallest_bound(certainty, wrong, risk)
    instead = "" if smallest is None else f"; these examples support max_error={smallest:.2g}"
    if needed is not None and needed > len(wrong):
        return TooFewExamplesError(
            f"{len(wrong):,} calibration examples do not support max_error={max_error:g} {confidence}: "
            f"about {needed:,} would be needed{instead}"
        )
    strict = sequential_tests.strictest(certainty, wrong)
    return ValueError(
        f"max_error={max_error:g} {confidence} cannot be met by refusing: {int(wrong.sum()):,} of {len(wrong):,} "
        f"predictions are wrong, {strict.errors:,} of the most certain {strict.count:,} among them{instead}"
    )
