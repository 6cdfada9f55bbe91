"""Selective prediction: the risk of the accepted predictions against the share that is accepted.

Sorted by certainty, the k surest of n predictions have coverage `k / n` and risk `mean loss of those k`
(Y. Geifman and R. El-Yaniv, Selective classification for deep neural networks, 2017). The loss is 1 for a
wrong label, or the squared error in regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import metrics
from bayesify.predictive import Predictive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.metrics import Floats, Numbers


@dataclass(frozen=True)
class RiskCoverage:
    """Risk and coverage at every threshold that accepts a different set of predictions, the surest first.

    Args:
        coverage: the share of accepted predictions, `[thresholds]`.
        risk: their mean loss, `[thresholds]`.
        threshold: in the units of `by`: accept a confidence at or above it, any other score at or below it.
        aurc: area under risk over coverage.
        e_aurc: AURC above that of the best possible ranking.
        augrc: area under the generalised risk over coverage.
        by: the score that ranks predictions.
        examples: number of predictions.

    Examples:
        >>> curve = bf.risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True])
        >>> curve.risk_at(0.5), curve.threshold_at(risk=0.0)
        (0.0, 0.8)

    """

    coverage: Floats
    risk: Floats
    threshold: Floats
    aurc: float
    e_aurc: float
    augrc: float
    by: str
    examples: int

    def risk_at(self, coverage: float) -> float:
        """Mean loss of the surest predictions.

        Args:
            coverage: the share of predictions that is accepted, at least; of equally sure ones an even part.

        Returns:
            The risk.

        """
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie above 0 and up to 1, got {coverage}")
        # 0.55 * 100 is slightly above 55 in floating point, and must not become 56 predictions.
        accepted = math.ceil(coverage * self.examples - 1e-9) / self.examples
        total = np.interp(accepted, np.append(0.0, self.coverage), np.append(0.0, self.coverage * self.risk))
        return float(total / accepted)

    def accuracy_at(self, coverage: float) -> float:
        """Accuracy of the surest predictions.

        Args:
            coverage: the share of predictions that is accepted, at least.

        Returns:
            One less the risk.

        """
        return 1.0 - self.risk_at(coverage)

    def coverage_at(self, risk: float) -> float:
        """The largest coverage with a risk of at most `risk`.

        Args:
            risk: the largest mean loss that is allowed.

        Returns:
            The share of accepted predictions; 0 where no threshold has so low a risk.

        """
        fit = self.coverage[self._within(risk)]
        return float(fit[-1]) if len(fit) else 0.0

    def threshold_at(self, coverage: float | None = None, *, risk: float | None = None) -> float:
        """The strictest threshold with at least this coverage, or the loosest with at most this risk.

        Pass it to `accept(at_least=)`, or to `accept(at_most=, by=curve.by)` where `by` is not the confidence.

        Args:
            coverage: the share of predictions to accept, at least.
            risk: the largest mean loss that is allowed; give this or `coverage`.

        Returns:
            The threshold, in the units of `by`.

        Raises:
            ValueError: where both or neither are given, or no threshold has so low a risk.

        """
        if (coverage is None) == (risk is None):
            raise ValueError("threshold_at needs one of coverage= and risk=, got both or neither")
        if risk is not None:
            fit = self.threshold[self._within(risk)]
            if len(fit) == 0:
                least = float(self.risk.min())
                raise ValueError(f"no threshold has a risk of at most {risk:g}: the smallest risk is {least:g}")
            return float(fit[-1])
        assert coverage is not None
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie above 0 and up to 1, got {coverage}")
        return float(self.threshold[np.searchsorted(self.coverage, coverage - 1e-12)])

    def _within(self, risk: float) -> NDArray[np.bool_]:
        # Ten times a tenth may come out slightly above one: a risk met exactly counts as met.
        return np.asarray(self.risk <= risk * (1 + 1e-9))


def risk_coverage(answers: Predictive | Numbers, targets: Any, by: str | None = None) -> RiskCoverage:
    """Risk of the accepted predictions at every coverage.

    Sorted by certainty, the k surest of n predictions have

        coverage = k / n          risk = mean loss of those k

    The loss is 1 for a wrong label, or the squared error in regression.

    Args:
        answers: predictions for n inputs, or n confidences.
        targets: the true classes or numbers; with confidences, whether each prediction was correct.
        by: the score that ranks predictions. By default `confidence`, for regression `variance`.

    Returns:
        A `RiskCoverage` with `coverage`, `risk` and `threshold`, `[thresholds]` each, the surest predictions first.

    Raises:
        ValueError: where the targets do not fit the predictions.

    Examples:
        >>> bf.risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True]).accuracy_at(0.5)
        1.0
        >>> curve = bf.risk_coverage(bnn.predict(x), y, by="epistemic")
        >>> curve.by, curve.examples
        ('epistemic', 60)

    References:
        R. El-Yaniv and Y. Wiener, "On the foundations of noise-free selective classification", 2010.
        Y. Geifman and R. El-Yaniv, "Selective classification for deep neural networks", 2017, arXiv:1705.08500.

    """
    if not isinstance(answers, Predictive):
        correct = metrics.as_array(targets, "correct")
        if not np.isin(correct, (0.0, 1.0)).all():
            raise ValueError(
                "correct must be true or false for each prediction; for other losses use curve(score, losses)"
            )
        return curve(answers, 1.0 - correct)
    by = by or ("confidence" if answers.kind == "classification" else "variance")
    prepared = answers.likelihood.prepare(targets).to(answers.outputs.device)
    truth, counted = answers.likelihood.compared(prepared), answers.likelihood.counted(prepared)
    classes = answers.kind == "classification"
    predicted = answers.labels if classes else answers.mean
    if truth.numel() != predicted.numel() or len(truth) != len(predicted):
        raise ValueError(f"targets {list(truth.shape)} do not fit the predictive's {list(predicted.shape)}")
    truth = truth.reshape(predicted.shape)
    losses = (predicted != truth).double() if classes else (predicted.double() - truth).square()
    score = answers.score(by)
    if counted is not None:  # positions without a label are left out
        score, losses = score[counted.reshape(score.shape)], losses[counted.reshape(losses.shape)]
    return curve(score, losses, by)


def curve(score: Numbers, losses: Numbers, by: str = "confidence") -> RiskCoverage:
    """The curve of any losses, ranked by a score: high is sure if it is named `confidence`, otherwise low is."""
    score_array, loss = metrics.paired(score, losses, "score", "losses")
    sign = 1.0 if by == "confidence" else -1.0
    certainty = sign * score_array
    values, counts = np.unique(-certainty, return_counts=True)
    accepted = np.cumsum(counts)
    totals = metrics.accepted_losses(certainty, loss)[accepted - 1]
    return RiskCoverage(
        coverage=accepted / len(loss),
        risk=totals / accepted,
        threshold=-sign * values,
        aurc=metrics.aurc(certainty, loss),
        e_aurc=metrics.excess_aurc(certainty, loss),
        augrc=metrics.augrc(certainty, loss),
        by=by,
        examples=len(loss),
    )
