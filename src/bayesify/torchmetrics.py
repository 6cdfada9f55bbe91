"""The scores of this package as torchmetrics: `update` batch by batch, over several processes, and `compute` once.

    scores = torchmetrics.MetricCollection([bf.torchmetrics.NLL(), bf.torchmetrics.ECE()])
    for x, y in loader:
        scores.update(bnn.predict(x), y)
    scores.compute()

Each takes a `Predictive`, or plain tensors such as class probabilities of another model. States are sums (or scores of
all inputs, for the AUROC), so that the result of many batches and processes is that of all examples at once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesify import metrics
from bayesify.errors import at_least
from bayesify.evaluation.scored_predictions import UNKNOWN_BY, uncertainty
from bayesify.evaluation.streamed import check_outputs, crps_of, in_double
from bayesify.predictive import Predictive

try:
    from torchmetrics import Metric
except ImportError as problem:
    raise ModuleNotFoundError(
        "bf.torchmetrics needs torchmetrics, which is not installed: pip install 'bayesify[torchmetrics]'",
        name="torchmetrics",
    ) from problem

__all__ = ["CRPS", "ECE", "NLL", "Brier", "IntervalCoverage", "UncertaintyAUROC"]


class _Mean(Metric):
    """The mean over examples of a score that is a sum over them."""

    is_differentiable = False
    full_state_update = False
    higher_is_better: bool | None = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Names differ between metrics: a `MetricCollection` shares states with the same names and values.
        self._total, self._count = (f"{type(self).__name__.lower()}_{part}" for part in ("total", "count"))
        for name in (self._total, self._count):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def compute(self) -> Tensor:
        """The mean over all examples so far.

        Returns:
            One number; NaN before the first update.

        """
        total: Tensor = getattr(self, self._total) / getattr(self, self._count)
        return total

    def _add(self, mean: float, examples: int) -> None:
        setattr(self, self._total, getattr(self, self._total) + mean * examples)
        setattr(self, self._count, getattr(self, self._count) + examples)


class NLL(_Mean):
    """Mean negative log-likelihood in nats, of classes or numbers; lower is better.

    Args:
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Examples:
        >>> metric = bf.torchmetrics.NLL()
        >>> metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([1]))
        >>> metric.compute()
        tensor(0.6931, dtype=torch.float64)

    """

    def update(self, prediction: Predictive | Tensor, targets: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive`, or class probabilities `[n, classes]`.
            targets: true labels or numbers.

        """
        if isinstance(prediction, Predictive):
            check_outputs(prediction, "the prediction")
            plain = in_double(prediction) if prediction.kind == "regression" else prediction
            self._add(-float(plain.log_prob(targets).double().mean()), len(prediction))
        else:
            self._add(metrics.nll(prediction, targets), math.prod(prediction.shape[:-1]))


class Brier(_Mean):
    """Brier score, the mean squared distance between probabilities and labels; lower is better.

    Args:
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Examples:
        >>> metric = bf.torchmetrics.Brier()
        >>> metric.update(torch.tensor([[0.8, 0.2]]), torch.tensor([0]))
        >>> metric.compute()
        tensor(0.0800, dtype=torch.float64)

    """

    def update(self, prediction: Predictive | Tensor, targets: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive` of classes, or class probabilities `[n, classes]`.
            targets: true labels.

        """
        probs, labels = _labelled(prediction, targets)
        if len(labels):
            self._add(metrics.brier(probs, labels), len(labels))


class CRPS(_Mean):
    """Continuous ranked probability score, in the units of the targets; lower is better.

    Args:
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Examples:
        >>> metric = bf.torchmetrics.CRPS()
        >>> metric.update((torch.tensor([0.0]), torch.tensor([1.0])), torch.tensor([0.0]))
        >>> metric.compute()
        tensor(0.2337, dtype=torch.float64)

    """

    def update(self, prediction: Predictive | tuple[Tensor, Tensor], targets: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive` of numbers, or means and standard deviations of normal distributions, `[n]` each.
            targets: true numbers.

        """
        if isinstance(prediction, Predictive):
            plain, prepared = _numbers(prediction, targets, "CRPS")
            self._add(crps_of(plain, prepared), len(prediction))
        else:
            means, stds = _pair(prediction, "means and standard deviations")
            self._add(metrics.crps(means.reshape(1, -1), stds.reshape(1, -1), _flat(targets)), means.numel())


class IntervalCoverage(_Mean):
    """The share of targets inside the central intervals of a level; for calibrated intervals it is the level.

    Args:
        level: the probability inside the intervals of a `Predictive`.
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Raises:
        ValueError: the level is not between 0 and 1.

    Examples:
        >>> metric = bf.torchmetrics.IntervalCoverage()
        >>> metric.update((torch.zeros(2), torch.ones(2)), torch.tensor([0.5, 2.0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)

    """

    higher_is_better = None

    def __init__(self, level: float = 0.95, **settings: Any) -> None:
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        super().__init__(**settings)
        self.level = level

    def update(self, prediction: Predictive | tuple[Tensor, Tensor], targets: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive` of numbers, or lower and upper ends of intervals, `[n]` each.
            targets: true numbers.

        """
        if isinstance(prediction, Predictive):
            plain, prepared = _numbers(prediction, targets, "IntervalCoverage")
            truth = plain.likelihood.compared(prepared).reshape(plain.mean.shape)
            self._add(metrics.interval_coverage(*plain.interval(self.level), truth), truth.numel())
        else:
            lower, upper = _pair(prediction, "lower and upper ends")
            self._add(metrics.interval_coverage(lower, upper, targets), lower.numel())


class ECE(Metric):
    """Expected calibration error over equal-width bins of confidence; lower is better.

    Args:
        bins: number of bins between 0 and 1.
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Examples:
        >>> metric = bf.torchmetrics.ECE()
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1]))
        >>> metric.compute()
        tensor(0.4000, dtype=torch.float64)

    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = False
    count: Tensor
    confidence: Tensor
    right: Tensor

    def __init__(self, bins: int = 15, **settings: Any) -> None:
        super().__init__(**settings)
        self.bins = at_least("bins", bins, 1)
        for name in ("count", "confidence", "right"):
            self.add_state(name, default=torch.zeros(bins, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, prediction: Predictive | Tensor, targets: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive` of classes, or class probabilities `[n, classes]`.
            targets: true labels.

        """
        probs, labels = _labelled(prediction, targets)
        if not len(labels):
            return
        curve = metrics.reliability_curve(probs, labels, self.bins)
        count = torch.from_numpy(curve.count).to(self.count)
        self.count = self.count + count
        for name, mean in (("confidence", curve.confidence), ("right", curve.accuracy)):
            total = torch.from_numpy(mean).to(self.count).nan_to_num(0.0) * count
            setattr(self, name, getattr(self, name) + total)

    def compute(self) -> Tensor:
        """The error over all examples so far.

        Returns:
            One number; NaN before the first update.

        """
        return (self.right - self.confidence).abs().sum() / self.count.sum()


class UncertaintyAUROC(Metric):
    """How well uncertainty finds the inputs that deserve it: unknown ones, or wrong predictions; higher is better.

    It is the probability that an input that deserves it is more uncertain than one that does not; 0.5 is chance.

    Args:
        by: the score of a `Predictive`, such as `entropy`, `epistemic` or `confidence`; None is the entropy of classes
            and the variance of numbers.
        **settings: those of every torchmetrics metric, such as `sync_on_compute`.

    Examples:
        >>> metric = bf.torchmetrics.UncertaintyAUROC(by="entropy")
        >>> prediction = bnn.predict(x)
        >>> metric.update(prediction, prediction.labels != y)  # are errors uncertain?
        >>> metric.reset()
        >>> metric.update(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([False, False, True, True]))
        >>> metric.compute()
        tensor(0.8750, dtype=torch.float64)

    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = True
    known: list[Tensor]
    unknown: list[Tensor]

    def __init__(self, by: str | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.by = by
        for name in ("known", "unknown"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, prediction: Predictive | Tensor, uncertain: Any) -> None:
        """Add a batch.

        Args:
            prediction: a `Predictive`, or uncertainties `[n]`, higher where a model is less certain.
            uncertain: which inputs should be uncertain, `[n]` bool: `prediction.labels != targets` for errors.

        """
        if isinstance(prediction, Predictive):
            check_outputs(prediction, "the prediction")
            scores = uncertainty(prediction, self.by or UNKNOWN_BY[prediction.kind])
        else:
            scores = torch.as_tensor(prediction).double().reshape(-1)
        flags = torch.as_tensor(uncertain, device=scores.device).reshape(-1)
        if len(flags) != len(scores):
            raise ValueError(f"uncertain must have one flag for each input, {len(scores)}, got {len(flags)}")
        if bool(((flags != 0) & (flags != 1)).any()):
            raise ValueError("uncertain must hold True and False: which inputs should be uncertain")
        self.known.append(scores[flags == 0])
        self.unknown.append(scores[flags == 1])

    def compute(self) -> Tensor:
        """The area over all inputs so far.

        Returns:
            One number from 0 to 1; NaN where no input, or every input, should be uncertain.

        """
        known, unknown = (_joined(part) for part in (self.known, self.unknown))
        area = metrics.auroc(known, unknown) if len(known) and len(unknown) else math.nan
        return torch.tensor(area, dtype=torch.float64, device=known.device)


def _labelled(prediction: Predictive | Tensor, targets: Any) -> tuple[Tensor, Tensor]:
    """Class probabilities `[n, classes]` and labels `[n]`, without positions that have no label."""
    if not isinstance(prediction, Predictive):
        probs, labels = torch.as_tensor(prediction), torch.as_tensor(targets)
        return probs.reshape(-1, probs.shape[-1]), labels.reshape(-1)
    check_outputs(prediction, "the prediction")
    prediction.log_prob(targets)  # it checks the labels, and finds their axis
    likelihood, probs = prediction.likelihood, prediction.probs
    prepared = likelihood.prepare(targets).to(probs.device)
    labels, counted = likelihood.compared(prepared).reshape(probs.shape[:-1]), likelihood.counted(prepared)
    if counted is None:
        return probs.reshape(-1, probs.shape[-1]), labels.reshape(-1)
    mask = counted.reshape(probs.shape[:-1])
    return probs[mask], labels[mask]


def _numbers(prediction: Predictive, targets: Any, name: str) -> tuple[Predictive, Tensor]:
    """A regression's prediction in double precision, and its targets."""
    if prediction.kind != "regression":
        raise ValueError(f"{name} is for predicted numbers, this prediction is of {prediction.kind}")
    check_outputs(prediction, "the prediction")
    prepared = prediction.likelihood.prepare(targets).to(prediction.outputs.device)
    if len(prepared) != len(prediction):
        raise ValueError(f"targets must have one row per input, {len(prediction)}, got {len(prepared)}")
    return in_double(prediction), prepared


def _pair(prediction: Any, what: str) -> tuple[Tensor, Tensor]:
    if not isinstance(prediction, tuple | list) or len(prediction) != 2:
        raise TypeError(f"the prediction must be a Predictive, or a pair of {what}, got {type(prediction).__name__}")
    first, second = (torch.as_tensor(part) for part in prediction)
    return first, second


def _flat(values: Any) -> Tensor:
    return torch.as_tensor(values).reshape(-1)


def _joined(parts: list[Tensor] | Tensor) -> Tensor:
    """The scores of all batches; after a sync between processes they are one tensor already."""
    if isinstance(parts, Tensor):
        return parts
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
