"""Positive, skewed numbers: `log y ~ N(location + scale * f, std^2)` for an output `f`.

With `m` and `s` the mean and the standard deviation of log y:

    log p(y) = log N(log y; m, s) - log y    median = exp(m)    mean = exp(m + s^2 / 2)    variance = expm1(s^2) mean^2

The Jacobian `- log y` makes the density one of y itself, so that its NLL compares with that of a `Gaussian`
(J. Aitchison and J. Brown, "The lognormal distribution", 1957).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods.gaussian import Gaussian
from bayesify.likelihoods.scaled import PerTarget
from bayesify.priors import Flat, Hyperprior


class LogNormal(Gaussian):
    """A positive number (or several) whose logarithm has normal noise: `log y ~ N(location + scale * output, std^2)`.

    For prices, durations and concentrations, whose errors grow with their size. Targets and predictions are in the
    units of the targets; `location`, `scale` and `noise` are those of their logarithms, which have no unit.

    Args:
        noise: the standard deviation of log y: about the relative error, 0.1 for 10%; or `"learned"`, one positive
            parameter (`std = scale * exp(log_noise)`); or `"heteroscedastic"`, one for every input, from the second
            half of the outputs; or a prior of the standard deviation, as `Gaussian` takes it.
        initial: the start value of a noise that is learned or has a prior, over `scale`.
        location: log y at an output of 0, the mean of the targets' logarithms; a number or one per target.
        scale: the change of log y per unit of output, the standard deviation of the targets' logarithms, likewise.

    Examples:
        >>> likelihood = bf.likelihoods.LogNormal(noise=0.5)
        >>> outputs = torch.tensor([[[2.0]]])
        >>> likelihood.mean(outputs), likelihood.quantile(outputs, torch.tensor(0.5))
        (tensor([[8.3729]]), tensor([[7.3891]]))

    """

    name = "log-normal"
    # Limits of censored targets may be zero, which has no logarithm.
    has_log_cdf = False

    def __init__(
        self,
        noise: float | str | Hyperprior | Flat = "learned",
        initial: float = 1.0,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        super().__init__(noise, initial, location, scale)

    @property
    def of_logs(self) -> Gaussian:
        """The likelihood of log y, with the same parameters (not copies of them)."""
        gaussian = Gaussian.__new__(Gaussian)
        vars(gaussian).update(vars(self))
        return gaussian

    def transformed(self, targets: Tensor) -> Tensor:
        """The logarithms, which `location` and `scale` standardise.

        Args:
            targets: prepared targets.

        Returns:
            Numbers of the same shape.

        """
        return targets.log()

    def prepare(self, targets: Any) -> Tensor:
        """Targets as a floating tensor.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Targets `[batch, ...]`.

        Raises:
            ValueError: if a target is not above 0 or not finite.

        """
        numbers = super().prepare(targets)
        wrong = int((numbers <= 0).sum())
        if wrong:
            raise ValueError(
                f"log-normal needs targets above 0, got {wrong:,} of {numbers.numel():,} at or below 0: use gaussian "
                "or student-t, or add a constant to the targets"
            )
        return numbers

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """`log N(log y; m, s) - log y`, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        logs = targets.log()
        density = super().log_prob(outputs, logs)
        return density - logs.reshape(logs.shape[0], -1).sum(1).to(density.dtype)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean `exp(m + s^2 / 2)` of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return moments(super().mean(outputs), super().noise_variance(outputs))[0]

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance `expm1(s^2) exp(2 m + s^2)` of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return moments(super().mean(outputs), super().noise_variance(outputs))[1]

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a target at most `values`, `Phi((log values - m) / s)`; 0 for values up to 0.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.of_logs.cdf(outputs, values.clamp(min=0.0).log())

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles `exp(m + s * Phi^-1(levels))`.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.of_logs.quantile(outputs, levels).exp()


def moments(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance of y, from those of log y."""
    return (mean + 0.5 * variance).exp(), torch.expm1(variance) * (2 * mean + variance).exp()
