"""What scores are computed from: predictions, their targets and, where given, predictions for unknown inputs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesify import metrics
from bayesify.evaluation.selective import RiskCoverage, risk_coverage
from bayesify.likelihoods import Regression
from bayesify.predictive import Predictive

_UNCERTAINTIES = {
    "classification": ("confidence", "entropy", "aleatoric", "epistemic", "expected_error"),
    "regression": ("variance", "aleatoric", "epistemic"),
}
_UNKNOWN_BY = {"classification": "entropy", "regression": "variance"}


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
        _check(predictive, "predictive")
        if predictive.kind == "regression":
            # Targets far from zero are compared in double, or rounding the predictions would count as error.
            predictive = _in_double(predictive)
            # Both in the same digits: a variance that is the same everywhere must not separate anything.
            ood = None if ood is None else _in_double(ood)
        if ood is not None:
            _check(ood, "ood")
            if ood.kind != predictive.kind:
                raise ValueError(f"ood must be a {predictive.kind} predictive like the other, got {ood.kind}")
        self.predictive = predictive
        self.ood = ood
        self.unknown_by = by or _UNKNOWN_BY[predictive.kind]
        prepared = predictive.likelihood.prepare(targets).to(predictive.outputs.device)
        self.nll = -float(predictive.log_prob(prepared).double().mean())
        self.curve = risk_coverage(predictive, prepared, by=by)
        shape = predictive.probs.shape[:-1] if predictive.kind == "classification" else predictive.mean.shape
        self.targets = prepared.reshape(shape)

    @property
    def probs(self) -> Tensor:
        """Class probabilities, `[n, classes]`."""
        return self.predictive.probs

    @property
    def mean(self) -> Tensor:
        """Predicted means of a regression, `[n]`."""
        return self.predictive.mean

    @property
    def crps(self) -> float:
        """The continuous ranked probability score, by the likelihood's own distribution."""
        likelihood = self.predictive.likelihood
        assert isinstance(likelihood, Regression)
        means = likelihood.mean(self.predictive.outputs)
        if likelihood.discrete:
            return metrics.crps_counts(means, self.targets)
        return metrics.crps(means, likelihood.noise_variance(self.predictive.outputs).sqrt(), self.targets)

    def average(self, name: str) -> float:
        """The mean over the inputs of one of the predictive's scores."""
        return float(self.predictive.score(name).double().mean())

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


def _in_double(predictive: Predictive) -> Predictive:
    return Predictive(predictive.outputs.double(), predictive.likelihood, predictive.keys)


def _check(predictive: Predictive, name: str) -> None:
    if len(predictive) == 0:
        raise ValueError(f"{name} has no inputs")
    wrong = int(torch.isnan(predictive.outputs).sum())
    if wrong:
        draws = int(torch.isnan(predictive.outputs).flatten(1).any(1).sum())
        where = f"{wrong} of its outputs, in {draws} of {predictive.draws} draws"
        raise ValueError(f"{name} holds NaN in {where}: the network has diverged or its input holds NaN")
