"""What every prior computes: its log density at given weights, and its divergence from a Gaussian posterior.

A proper prior is a location-scale family, `p(w) = f((w - mean) / scale) / scale`. Location and scale are
arguments of every function, because a scale may differ between weights (`"fan_in"`) or be a variable itself.
For the posterior `q = N(mean, std^2)` the divergence is

    KL(q || p) = E_q[log q(w)] - E_q[log p(w)] = -log(std) - log(2 pi e) / 2 - E_q[log p(w)].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bayesify.priors.arguments import argument_fields, check, number_text
from bayesify.priors.hyperpriors import Hyperprior

Number = Tensor | float
Scale = float | Literal["fan_in"] | Hyperprior

LOG_TWO_PI = math.log(2 * math.pi)
HALF_LOG_TWO_PI_E = 0.5 * (LOG_TWO_PI + 1.0)


class Prior(ABC):
    """The base class of all priors: a density over one weight, the same for all its weights up to location and scale.

    A prior has a `name` in the text form, and says whether it is `proper` (integrates to one). `approximate` is the
    note that summaries print about it, or None. Most new priors derive from `LocationScale`, see
    docs/adding-a-prior.md.

    Examples:
        >>> prior = bf.priors.parse("laplace:0.5")
        >>> isinstance(prior, bf.priors.Prior), prior.proper, prior.text
        (True, True, 'laplace:0.5')

    """

    name: ClassVar[str]
    proper: ClassVar[bool] = True
    approximate: ClassVar[str | None] = None

    scale: Scale = 1.0
    mean: float = 0.0

    @abstractmethod
    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        """The log density `log p(w)` of each weight.

        Args:
            weights: any shape.
            scale: broadcasts against the weights; the prior's own unless given.
            mean: likewise.

        Returns:
            A tensor of the shape of `weights`.

        Examples:
            >>> bf.priors.Normal(1.0).log_density(torch.tensor([0.0, 2.0]))
            tensor([-0.9189, -2.9189])

        """

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor | None:
        """The divergence `KL(N(mean, std^2) || prior)` of each weight, or None if there is no closed form.

        Args:
            mean: the posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: broadcasts against the means; the prior's own unless given.
            prior_mean: the prior's location, likewise.

        Returns:
            A tensor of the shape of `mean`, or None: `WeightPrior.kl` then averages over draws.

        Examples:
            >>> bf.priors.Normal(2.0).closed_kl(torch.zeros(1), torch.ones(1))
            tensor([0.3181])
            >>> bf.priors.Cauchy().closed_kl(torch.zeros(1), torch.ones(1)) is None
            True

        """
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
        """Draws of the weights `start ... start + size - 1`, one set for each key.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.
            size: how many weights.
            scale: broadcasts against `[size]`; the prior's own unless given.
            mean: likewise.
            start: the first weight's place in the flat vector; every place has its own noise.

        Returns:
            Draws `[..., size]`.

        Examples:
            >>> keys = bf.noise.keys(0, bf.noise.Stream.INITIAL, draws=range(4))
            >>> bf.priors.Laplace(0.1).sample(keys, 10).shape
            torch.Size([4, 10])

        """

    def scale_for(self, fan_in: int) -> float:
        """The scale as a number, for a tensor with this fan-in.

        Args:
            fan_in: the number of inputs that each output sums over.

        Returns:
            `1 / sqrt(fan_in)` for the scale `"fan_in"`, else the scale itself.

        Raises:
            ValueError: if the scale is a variable.

        Examples:
            >>> bf.priors.Normal("fan_in").scale_for(16)
            0.25

        """
        if self.scale == "fan_in":
            return 1.0 / math.sqrt(fan_in)
        if isinstance(self.scale, float):
            return self.scale
        raise ValueError(f"the scale of {self.text} is a variable and has no fixed value: use one such as normal:1")

    @property
    def family(self) -> tuple[object, ...]:
        """What two priors have in common if only their location and scale differ; such priors are computed together."""
        return (type(self),)

    @property
    def text(self) -> str:
        """The form in configuration files and on the command line, such as `normal:1`; `priors.parse` reads it."""
        values = [getattr(self, field.name) for field in argument_fields(type(self))]
        if values and values[-1] == 0.0:  # the mean comes last in every family
            values.pop()
        return f"{self.name}:{','.join(map(_value_text, values))}" if values else self.name

    def __str__(self) -> str:
        return self.text


class LocationScale(Prior):
    """A proper prior, given by its standard form f (mean 0, scale 1): `p(w) = f((w - mean) / scale) / scale`."""

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        """`log f((w - mean) / scale) - log(scale)` of each weight.

        Args:
            weights: any shape.
            scale: broadcasts against the weights; the prior's own unless given.
            mean: likewise.

        Returns:
            A tensor of the shape of `weights`.

        """
        scale, mean = self._or_defaults(scale, mean)
        return self.log_standard(divide(subtract(weights, mean), scale)) - _log(scale)

    def sample(
        self,
        keys: Tensor,
        size: int,
        scale: Number | None = None,
        mean: Number | None = None,
        start: int = 0,
    ) -> Tensor:
        """Draws `mean + scale * z` with z from the standard form, one set for each key.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.
            size: how many weights.
            scale: broadcasts against `[size]`; the prior's own unless given.
            mean: likewise.
            start: the first weight's place in the flat vector; every place has its own noise.

        Returns:
            Draws `[..., size]`.

        """
        scale, mean = self._or_defaults(scale, mean)
        return self.sample_standard(keys, size, start) * scale + mean

    @abstractmethod
    def log_standard(self, z: Tensor) -> Tensor:
        """The log density at mean 0 and scale 1.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """

    @abstractmethod
    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Draws at mean 0 and scale 1.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """

    def _or_defaults(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        """The given scale and mean, or the prior's own."""
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


def subtract(value: Tensor, number: Number) -> Tensor:
    """`value - number`, without the pass over memory if the number is a plain zero."""
    return value if isinstance(number, float) and number == 0.0 else value - number


def divide(value: Tensor, number: Number) -> Tensor:
    """`value / number`, without the pass over memory if the number is a plain one."""
    return value if isinstance(number, float) and number == 1.0 else value / number


def check_location_and_scale(prior: Prior) -> None:
    """Raise an error unless scale and mean give a density, and keep both as floats."""
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
