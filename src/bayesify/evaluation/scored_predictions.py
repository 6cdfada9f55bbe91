"""What scores are computed from: predictions, their targets and, where given, predictions for unknown inputs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor

from bayesify import metrics
from bayesify.evaluation.selective import RiskCoverage, risk_coverage
from bayesify.evaluation.streamed import check_outputs, crps_of, in_double
from bayesify.predictive import Predictive

_UNCERTAINTIES = {
    "classification": ("confidence", "entropy", "aleatoric", "epistemic", "expected_error"),
    "regression": ("variance", "aleatoric", "epistemic"),
}
UNKNOWN_BY = {"classification": "entropy", "regression": "variance"}


class ScoredPredictions:
    """Predictions for n inputs beside their targets, as the functions of the score table take them.

    Args:
        predictive: predictions for the known inputs.
        targets: their true classes or numbers.
        ood: predictions for unknown inputs, or None.
        by: what ranks the predictions and separates the unknown inputs, where not the default.

    """

    predictive: Predictive
    ood: Predictive | None
    targets: Tensor
    curve: RiskCoverage
    nll: float
    unknown_by: str

    def __init__(
        self, predictive: Predictive, targets: Any, ood: Predictive | None = None, by: str | None = None
    ) -> None:
        check_outputs(predictive, "predictive")
        if predictive.kind == "regression":
            # Targets far from zero are compared in double, or rounding the predictions would count as error.
            predictive = in_double(predictive)
            # Both in the same digits: a variance that is the same everywhere must not separate anything.
            ood = None if ood is None else in_double(ood)
        if ood is not None:
            check_outputs(ood, "ood")
            if ood.kind != predictive.kind:
                raise ValueError(f"ood must be a {predictive.kind} predictive like the other, got {ood.kind}")
        self.predictive = predictive
        self.ood = ood
        self.unknown_by = by or UNKNOWN_BY[predictive.kind]
        prepared = predictive.likelihood.prepare(targets).to(predictive.outputs.device)
        self.nll = -float(predictive.log_prob(prepared).double().mean())
        self.curve = risk_coverage(predictive, prepared, by=by)
        shape = predictive.probs.shape[:-1] if predictive.kind == "classification" else predictive.mean.shape
        # Positions without a label do not count.
        counted = predictive.likelihood.counted(prepared)
        self._counted = None if counted is None else counted.reshape(shape)
        self.prepared = prepared
        self.targets = self._those_counted(predictive.likelihood.compared(prepared).reshape(shape))

    @property
    def probs(self) -> Tensor:
        """Class probabilities, `[n, classes]`."""
        return self._those_counted(self.predictive.probs)

    @property
    def mean(self) -> Tensor:
        """Predicted means of a regression, `[n]`."""
        return self.predictive.mean

    @property
    def crps(self) -> float:
        """The continuous ranked probability score, by the likelihood's own distribution."""
        return crps_of(self.predictive, self.prepared)

    def average(self, name: str) -> float:
        """The mean over the inputs of one of the predictive's scores."""
        return float(self._those_counted(self.predictive.score(name)).double().mean())

    def _those_counted(self, values: Tensor) -> Tensor:
        return values if self._counted is None else values[self._counted]

    def uncertainty(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """How uncertain each known and each unknown input is, `[known]` and `[unknown]`, by `unknown_by` or by name."""
        assert self.ood is not None
        by = name or self.unknown_by
        return uncertainty(self.predictive, by), uncertainty(self.ood, by)

    @cached_property
    def auroc_by(self) -> dict[str, float] | None:
        """The AUROC for unknown inputs by every measure of uncertainty; None without unknown inputs."""
        if self.ood is None:
            return None
        names = dict.fromkeys([*_UNCERTAINTIES[self.predictive.kind], self.unknown_by])
        return {name: metrics.auroc(*self.uncertainty(name)) for name in names}


def uncertainty(predictive: Predictive, by: str) -> Tensor:
    """How uncertain each input is by one of the predictive's scores, `[n]`: a target's own dimensions are averaged."""
    return -predictive.certainty(by).double().reshape(len(predictive), -1).mean(1)
