"""A predictive distribution whose probabilities are corrected by a fitted map (`predictive/recalibration.py`).

The map acts on the mean over the draws. It changes how much uncertainty there is and leaves its split as it was:
aleatoric and epistemic uncertainty keep their shares of the total. What belongs to single draws (`outputs`,
`draw_probs`, `expected_error`, `std` of classes) is not changed.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import at_least
from bayesify.likelihoods import Likelihood, Regression
from bayesify.likelihoods.log_normal import moments
from bayesify.predictive.predictive import Predictive, uniforms_inside
from bayesify.predictive.recalibration import ClassMap, IsotonicNumbers, Recalibration, VarianceScale

# Levels at which the quantiles of a distribution without a formula are averaged.
_LEVELS = 40


class Recalibrated(Predictive):
    """A predictive distribution after a recalibration.

    Args:
        raw: the prediction of the method itself.
        recalibration: the fitted map.

    Raises:
        ValueError: a map for classes was given for numbers, or the other way round.

    """

    def __init__(self, raw: Predictive, recalibration: Recalibration) -> None:
        if raw.kind != recalibration.kind:
            raise ValueError(f"{recalibration.name} is a recalibration for {recalibration.kind}, this is {raw.kind}")
        super().__init__(raw.outputs, raw.likelihood, raw.keys, raw.class_names)
        self._positions = raw._positions  # noqa: SLF001 -- the same class
        self.by = raw.by
        self.raw = raw
        self.recalibration = recalibration

    @cached_property
    def probs(self) -> Tensor:
        """Corrected class probabilities, `[batch, classes]`."""
        probs = self.raw.probs
        assert isinstance(self.recalibration, ClassMap)
        return self.recalibration.probs(probs)

    @cached_property
    def expected_error(self) -> Tensor:
        """One minus the share of the draws that predict the most common label, `[batch]`; not corrected."""
        return self.raw.expected_error

    @cached_property
    def of_logs(self) -> Predictive | None:
        """The corrected distribution of log y; None unless y is log-normal."""
        return None if self.raw.of_logs is None else Recalibrated(self.raw.of_logs, self.recalibration)

    @cached_property
    def mean(self) -> Tensor:
        """The expected target, `[batch]`."""
        if isinstance(self.recalibration, IsotonicNumbers):
            return self._quantiles.mean(0).to(self._dtype)
        return self.raw.mean if self.raw.of_logs is None else self._log_normal_moments[0].to(self._dtype)

    @cached_property
    def variance(self) -> Tensor:
        """Total variance of the target, `[batch]`."""
        raw = self.raw.variance
        if isinstance(self.recalibration, VarianceScale):
            widened = self.raw.of_logs is not None
            return self._log_normal_moments[1].to(self._dtype) if widened else raw * self.recalibration.scale**2
        return self._quantiles.var(0, correction=0).to(self._dtype)

    @cached_property
    def aleatoric(self) -> Tensor:
        """The part of the uncertainty that more data would not remove, `[batch]`: its share is that before."""
        if self.kind == "regression":
            return self.variance - self.epistemic
        return self.entropy - self.epistemic

    @cached_property
    def epistemic(self) -> Tensor:
        """The part of the uncertainty that is disagreement of the draws, `[batch]`: its share is that before."""
        numbers = self.kind == "regression"
        total, before = (self.variance, self.raw.variance) if numbers else (self.entropy, self.raw.entropy)
        share = self.raw.epistemic / before.clamp(min=torch.finfo(before.dtype).tiny)
        return total * share.clamp(max=1.0)

    @cached_property
    def std(self) -> Tensor:
        """Regression: the root of `variance`, `[batch]`. Classes: of the draws, `[batch, classes]`, not corrected."""
        return self.variance.sqrt() if self.kind == "regression" else self.raw.std

    def log_prob(self, targets: Any) -> Tensor:
        """The log density of targets, in nats.

        Args:
            targets: true labels or numbers, `[batch]`; log densities are summed over further dimensions.

        Returns:
            Log densities, `[batch]`.

        """
        before = self.raw.log_prob(targets)  # checks the targets too
        prepared = self.likelihood.prepare(targets).to(self.outputs.device)
        if isinstance(self.recalibration, ClassMap):
            labels = prepared.reshape(self.probs.shape[:-1]).unsqueeze(-1)
            chosen = self.probs.gather(-1, labels).squeeze(-1)
            return chosen.clamp(min=torch.finfo(chosen.dtype).tiny).log().reshape(len(self), -1).sum(-1)
        values = prepared.reshape(self.raw.mean.shape)
        if isinstance(self.recalibration, VarianceScale):
            if self.of_logs is not None:
                logs = values.log()
                return self.of_logs.log_prob(logs) - logs.reshape(len(self), -1).sum(-1).to(self._dtype)
            count = math.prod(values.shape[1:])
            return self.raw.log_prob(self._towards_mean(values)) - count * math.log(self.recalibration.scale)
        assert isinstance(self.recalibration, IsotonicNumbers)
        slopes = self.recalibration.slope(self.raw.cdf(values))
        return before + slopes.log().reshape(len(self), -1).sum(-1)

    def cdf(self, values: Tensor) -> Tensor:
        """The probability of a target at most `values` (regression).

        Args:
            values: one number per target, shaped like `mean`.

        Returns:
            Probabilities, shaped like `mean`.

        """
        self._regression("cdf")
        if isinstance(self.recalibration, VarianceScale):
            if self.of_logs is not None:
                return self.of_logs.cdf(values.clamp(min=0.0).log())
            return self.raw.cdf(self._towards_mean(values))
        assert isinstance(self.recalibration, IsotonicNumbers)
        return self.recalibration.forward(self.raw.cdf(values))

    def sample(self, count: int, seed: int = 0) -> Tensor:
        """Sample targets from the corrected distribution.

        Labels are sampled for each input on its own; a sample of numbers shares a draw of the weights.

        Args:
            count: number of samples, at least 1.
            seed: the seed of the random numbers.

        Returns:
            Targets, `[count, batch, ...]`.

        Raises:
            ValueError: for numbers after an isotonic recalibration, which has quantiles only.

        """
        count = at_least("count", count, 1)
        if isinstance(self.recalibration, VarianceScale):
            if self.of_logs is not None:
                return self.of_logs.sample(count, seed).exp()
            mean = self.mean
            return mean + self.recalibration.scale * (self.raw.sample(count, seed) - mean)
        if self.kind == "regression":
            raise ValueError("sample is not available after an isotonic recalibration of numbers: use quantile")
        device, shape = self.outputs.device, self.labels.shape
        size, reach = math.prod(shape[1:]), int(self._positions.max()) + 1 if len(self) else 0
        keys = noise.keys(seed, noise.Stream.TARGETS, step=2, draws=range(count), device=device)
        levels = uniforms_inside(keys, reach * size).view(count, reach, size)[:, self._positions.to(device)]
        cumulative = self.probs.double().cumsum(-1)
        return (cumulative / cumulative[..., -1:]).lt(levels.view(count, *shape).unsqueeze(-1)).sum(-1)

    def with_outputs(self, outputs: Tensor) -> Predictive:
        """The same distribution of other outputs.

        Args:
            outputs: outputs of the network, `[draws, batch, ...]`.

        Returns:
            A predictive with the same likelihood, names and recalibration.

        """
        return Recalibrated(self.raw.with_outputs(outputs), self.recalibration)

    def __getitem__(self, index: Any) -> Predictive:
        """The predictive distribution of some of the inputs; a single index gives a batch of one."""
        return Recalibrated(self.raw[index], self.recalibration)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, recalibrated by {self.recalibration.name})"

    def _quantile(self, name: str, level: float) -> Tensor:
        """A quantile in double precision; `name` is what an error calls the caller."""
        self._regression(name)
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        if self.of_logs is not None:
            return self.of_logs._quantile(name, level).exp()  # noqa: SLF001 -- the same class
        if isinstance(self.recalibration, VarianceScale):
            mean = self.raw.mean.double()
            return mean + self.recalibration.scale * (self.raw._quantile(name, level) - mean)  # noqa: SLF001 -- the same class
        assert isinstance(self.recalibration, IsotonicNumbers)
        before = self.recalibration.backward(level)
        return self.raw._quantile(name, min(max(before, 1e-9), 1 - 1e-9))  # noqa: SLF001 -- the same class

    @cached_property
    def _quantiles(self) -> Tensor:
        """Quantiles at evenly spaced levels, `[levels, batch]`: their mean and variance are those of the whole."""
        levels = [(number + 0.5) / _LEVELS for number in range(_LEVELS)]
        return torch.stack([self._quantile("mean", level) for level in levels])

    @cached_property
    def _log_normal_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of y after all widths of log y were multiplied, in double."""
        assert self.raw.of_logs is not None
        assert isinstance(self.recalibration, VarianceScale)
        return widened_moments(self.raw.of_logs.likelihood, self.outputs.double(), self.recalibration.scale)

    def _towards_mean(self, values: Tensor) -> Tensor:
        """Where a value was before all widths were multiplied."""
        assert isinstance(self.recalibration, VarianceScale)
        mean = self.raw.mean
        return mean + (values.to(mean) - mean) / self.recalibration.scale


def widened_moments(of_logs: Likelihood, outputs: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Mean and variance of y where the distribution of log y is `scale` times as wide around its mean.

    Args:
        of_logs: the likelihood of log y.
        outputs: of the draws, `[draws, batch, ...]`.
        scale: the factor.

    Returns:
        Both, `[batch]` or `[batch, *dims]`.

    """
    assert isinstance(of_logs, Regression)
    means = of_logs.mean(outputs)
    means = means.mean(0) + scale * (means - means.mean(0))
    mean, variance = moments(means, scale**2 * of_logs.noise_variance(outputs))
    return mean.mean(0), variance.mean(0) + (mean - mean.mean(0)).square().mean(0)
