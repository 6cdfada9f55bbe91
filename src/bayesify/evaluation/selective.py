"""Answering only when certain enough: the risk among the accepted answers against how many are accepted.

Sorted by certainty, the k surest of n answers have coverage `k / n` and risk `mean loss of those k`
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
    """One point for each threshold that tells answers apart, from the surest on.

    `threshold` is in the units of the score named `by`: accept confidence at or above it, any other score
    at or below it.
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
        """Mean loss of the surest answers that make up at least `coverage`; a tie at the edge is shared."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie above 0 and up to 1, got {coverage}")
        # 0.55 * 100 is a hair above 55 in floating point, and must not become 56 answers.
        accepted = math.ceil(coverage * self.examples - 1e-9) / self.examples
        total = np.interp(accepted, np.append(0.0, self.coverage), np.append(0.0, self.coverage * self.risk))
        return float(total / accepted)

    def accuracy_at(self, coverage: float) -> float:
        """Share of right labels among the surest answers that make up at least `coverage`."""
        return 1.0 - self.risk_at(coverage)

    def coverage_at(self, risk: float) -> float:
        """The largest share of answers that a threshold accepts at a risk of at most `risk`, or 0."""
        fit = self.coverage[self._within(risk)]
        return float(fit[-1]) if len(fit) else 0.0

    def threshold_at(self, coverage: float | None = None, *, risk: float | None = None) -> float:
        """The strictest threshold that accepts at least this share, or the loosest of at most this risk.

        Give it to `accept(at_least=)`, or to `accept(at_most=, by=curve.by)` where `by` is not the confidence.
        """
        if (coverage is None) == (risk is None):
            raise ValueError("threshold_at needs one of coverage= and risk=, got both or neither")
        if risk is not None:
            fit = self.threshold[self._within(risk)]
            if len(fit) == 0:
                least = float(self.risk.min())
                raise ValueError(f"no threshold has a risk of at most {risk:g}: the least that any has is {least:g}")
            return float(fit[-1])
        assert coverage is not None
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must lie above 0 and up to 1, got {coverage}")
        return float(self.threshold[np.searchsorted(self.coverage, coverage - 1e-12)])

    def _within(self, risk: float) -> NDArray[np.bool_]:
        # Ten times a tenth may come out a hair above one: a risk met exactly counts as met.
        return np.asarray(self.risk <= risk * (1 + 1e-9))


def risk_coverage(answers: Predictive | Numbers, targets: Any, by: str | None = None) -> RiskCoverage:
    """The curve of a predictive and its targets, or of confidences and whether each answer was correct.

    A predictive is ranked by `confidence` (regression: `variance`) unless `by` names another of its scores.

    >>> risk_coverage([0.9, 0.8, 0.7, 0.6], [True, True, False, True]).accuracy_at(0.5)
    1.0
    """
    if not isinstance(answers, Predictive):
        correct = metrics.as_array(targets, "correct")
        if not np.isin(correct, (0.0, 1.0)).all():
            raise ValueError("correct must hold true and false only; for other losses use curve(score, losses)")
        return curve(answers, 1.0 - correct)
    by = by or ("confidence" if answers.kind == "classification" else "variance")
    truth = answers.likelihood.prepare(targets).to(answers.outputs.device)
    given = answers.labels if answers.kind == "classification" else answers.mean
    if truth.numel() != given.numel() or len(truth) != len(given):
        raise ValueError(f"targets {list(truth.shape)} do not fit the predictive's {list(given.shape)}")
    truth = truth.reshape(given.shape)
    losses = (given != truth).double() if answers.kind == "classification" else (given.double() - truth).square()
    return curve(answers.score(by), losses, by)


def curve(score: Numbers, losses: Numbers, by: str = "confidence") -> RiskCoverage:
    """The curve of any losses, ranked by a score: high is sure if it is named `confidence`, else low is."""
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
