"""What every prior answers: its log density at weights, and its divergence from a Gaussian posterior.

A proper prior is a location-scale family, `p(w) = f((w - mean) / scale) / scale`. Location and scale are
arguments of every function, because a scale may differ between weights (`"fan_in"`) or be a variable itself.
For the posterior `q = N(mean, std^2)` the divergence is

    KL(q || p) = E_q[log q(w)] - E_q[log p(w)] = -log(std) - log(2 pi e) / 2 - E_q[log p(w)].
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bayesify.priors.arguments import check, number_text
from bayesify.priors.hyperpriors import Hyperprior

Number = Tensor | float
Scale = float | Literal["fan_in"] | Hyperprior

LOG_TWO_PI = math.log(2 * math.pi)
HALF_LOG_TWO_PI_E = 0.5 * (LOG_TWO_PI + 1.0)


class Prior(ABC):
    """A density over one weight; the same for every weight it is given to, but for location and scale."""

    name: ClassVar[str]
    proper: ClassVar[bool] = True
    approximate: ClassVar[str | None] = None  # what a summary should say about it

    scale: Scale = 1.0
    mean: float = 0.0

    @abstractmethod
    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        """Elementwise log p(w); scale and mean broadcast, and default to the prior's own."""

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor | None:
        """Elementwise KL(N(mean, std^2) || prior), or None where there is no closed form."""
        return None

    @abstractmethod
    def sample(
        self,
        keys: Tensor,
        size: int,
        scale: Number | None = None,
        mean: Number | None = None,
        start: int = 0,
    ) -> Tensor:
        """Draws for weights `start ... start + size - 1` of each key: `[..., 2]` -> `[..., size]`."""

    def scale_for(self, fan_in: int) -> float:
        """The scale as a number, for a tensor with this fan-in."""
        if self.scale == "fan_in":
            return 1.0 / math.sqrt(fan_in)
        if isinstance(self.scale, float):
            return self.scale
        raise ValueError(f"the scale of {self.text} is a variable: it has no number")

    @property
    def family(self) -> tuple[object, ...]:
        """What two priors share when only location and scale tell them apart."""
        return (type(self),)

    @property
    def text(self) -> str:
        """The form that configuration files and the command line use; `priors.parse` reads it back."""
        values = [getattr(self, name) for name in argument_names(type(self))]
        if values and values[-1] == 0.0:  # the mean comes last in every family
            values.pop()
        return f"{self.name}:{','.join(map(_value_text, values))}" if values else self.name

    def __str__(self) -> str:
        return self.text


class LocationScale(Prior):
    """A proper prior, given by its standard form (mean 0, scale 1)."""

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        scale, mean = self._own(scale, mean)
        return self._log_standard(divide(subtract(weights, mean), scale)) - _log(scale)

    def sample(
        self,
        keys: Tensor,
        size: int,
        scale: Number | None = None,
        mean: Number | None = None,
        start: int = 0,
    ) -> Tensor:
        scale, mean = self._own(scale, mean)
        return self._standard_draws(keys, size, start) * scale + mean

    @abstractmethod
    def _log_standard(self, z: Tensor) -> Tensor: ...

    @abstractmethod
    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor: ...

    def _own(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        if scale is None:
            if self.scale == "fan_in":
                raise ValueError(f"{self.text} takes its scale from a tensor's fan-in: pass the scale")
            if isinstance(self.scale, Hyperprior):
                raise ValueError(f"the scale of {self.text} is a variable: pass the scale")
            scale = self.scale
        return scale, self.mean if mean is None else mean


def entropy(std: Tensor) -> Tensor:
    """Elementwise entropy of N(., std^2), in nats."""
    return torch.log(std) + HALF_LOG_TWO_PI_E


def argument_names(kind: type[Prior]) -> list[str]:
    """The constructor's arguments, in the order in which the text form gives them."""
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def subtract(value: Tensor, number: Number) -> Tensor:
    """`value - number`, without the pass over memory where the number is a plain zero."""
    return value if isinstance(number, float) and number == 0.0 else value - number


def divide(value: Tensor, number: Number) -> Tensor:
    """`value / number`, without the pass over memory where the number is a plain one."""
    return value if isinstance(number, float) and number == 1.0 else value / number


def check_location_and_scale(prior: Prior) -> None:
    """Refuse a scale or a mean that makes no density, and keep both as floats."""
    if isinstance(prior.scale, str):
        if prior.scale != "fan_in":
            raise ValueError(f"scale must be a positive number, 'fan_in' or a hyperprior, got {prior.scale!r}")
    elif not isinstance(prior.scale, Hyperprior):
        check(prior, "scale", above_zero=True)
    check(prior, "mean")


def _log(number: Number) -> Number:
    return torch.log(number) if isinstance(number, Tensor) else math.log(number)


def _value_text(value: float | str | Hyperprior) -> str:
    if isinstance(value, Hyperprior):
        return value.text
    return value if isinstance(value, str) else number_text(value)
