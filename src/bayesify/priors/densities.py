"""The proper priors: Normal, Laplace, Cauchy, Student's t and the scale mixture.

The KL from a Gaussian is closed for Normal and for Laplace, where `E|w - m|` is the mean of a folded normal.
The others leave it to Monte Carlo, as Blundell, Cornebise, Kavukcuoglu and Wierstra (2015) do for the scale
mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bayesify import noise
from bayesify.priors.arguments import check
from bayesify.priors.prior import (
    HALF_LOG_TWO_PI_E,
    LOG_TWO_PI,
    LocationScale,
    Number,
    Scale,
    check_location_and_scale,
    divide,
    subtract,
)


@dataclass(frozen=True)
class Normal(LocationScale):
    """N(mean, scale^2)."""

    name = "normal"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """`((mean - m)^2 + std^2) / (2 scale^2) - 1/2 - log(std / scale)`."""
        scale, prior_mean = self._own(scale, prior_mean)
        distance = divide(subtract(mean, prior_mean), scale)
        ratio = divide(std, scale)
        return 0.5 * (distance * distance + ratio * ratio - 1.0) - torch.log(ratio)

    def _log_standard(self, z: Tensor) -> Tensor:
        return -0.5 * (z * z) - 0.5 * LOG_TWO_PI

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        return noise.normal(keys, size, start)


@dataclass(frozen=True)
class Laplace(LocationScale):
    """exp(-|w - mean| / scale) / (2 scale)."""

    name = "laplace"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """`log(2 scale) + E|w - m| / scale - entropy`, the middle the mean of a folded normal."""
        scale, prior_mean = self._own(scale, prior_mean)
        distance = subtract(mean, prior_mean)
        standardised = distance / std
        near = math.sqrt(2 / math.pi) * std * torch.exp(-0.5 * standardised * standardised)
        far = distance * torch.erf(math.sqrt(0.5) * standardised)
        constant = math.log(2) - HALF_LOG_TWO_PI_E
        return divide(near + far, scale) - torch.log(divide(std, scale)) + constant

    def _log_standard(self, z: Tensor) -> Tensor:
        return -z.abs() - math.log(2)

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        # The difference of two exponentials is exactly symmetric, which an inverse on a float32 grid is not.
        first, second = _two_uniforms(keys, size, start)
        return torch.log(first) - torch.log(second)


@dataclass(frozen=True)
class Cauchy(LocationScale):
    """1 / (pi scale (1 + ((w - mean) / scale)^2))."""

    name = "cauchy"
    approximate = "KL by Monte Carlo"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def _log_standard(self, z: Tensor) -> Tensor:
        return -torch.log1p(z * z) - math.log(math.pi)

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        # The cotangent of the nearer end keeps both tails; tan(pi (u - 1/2)) would round them off in float32.
        u = noise.uniform(keys, size, _FIRST_UNIFORM + start)
        return torch.copysign(1.0 / torch.tan(math.pi * torch.minimum(u, 1.0 - u)), 0.5 - u)


@dataclass(frozen=True)
class StudentT(LocationScale):
    """Student's t with `df` degrees of freedom: Cauchy at 1, towards the normal as it grows."""

    name = "student-t"
    approximate = "KL by Monte Carlo"

    df: float = 3.0
    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check(self, "df", above_zero=True)
        check_location_and_scale(self)

    @property
    def family(self) -> tuple[object, ...]:
        return (type(self), self.df)

    def _log_standard(self, z: Tensor) -> Tensor:
        df = self.df
        # Far out the two log-gammas cancel all their digits; their difference has a short series there.
        gammas = (
            math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
            if df < 1e4
            else 0.5 * math.log(df / 2) - 1 / (4 * df) + 1 / (24 * df**3)
        )
        return gammas - 0.5 * math.log(df * math.pi) - (df + 1) / 2 * torch.log1p(z * z / df)

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        # Bailey (1994): the Box-Muller radius, with its logarithm replaced by a power, gives Student's t.
        first, second = _two_uniforms(keys, size, start)
        radius = torch.sqrt(self.df * torch.expm1(-2.0 / self.df * torch.log(first)))
        return radius * torch.cos(2 * math.pi * second)


@dataclass(frozen=True)
class ScaleMixture(LocationScale):
    """pi N(mean, sigma1^2) + (1 - pi) N(mean, sigma2^2): wide and narrow at once (Blundell et al. 2015)."""

    name = "scale-mixture"
    approximate = "KL by Monte Carlo"

    pi: float
    sigma1: float
    sigma2: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        check(self, "pi")
        if not 0.0 < self.pi < 1.0:
            raise ValueError(f"pi must lie strictly between 0 and 1, got {self.pi!r}")
        check(self, "sigma1", above_zero=True)
        check(self, "sigma2", above_zero=True)
        check(self, "mean")

    @property
    def family(self) -> tuple[object, ...]:
        return (type(self), self.pi, self.sigma1, self.sigma2)

    @property
    def constants(self) -> tuple[float, float, float, float]:
        """What `log_mixture` needs to know of it."""
        components = [(self.sigma1, math.log(self.pi)), (self.sigma2, math.log1p(-self.pi))]
        (wide, log_wide), (narrow, log_narrow) = sorted(components, reverse=True)
        at_zero = log_wide - math.log(wide) - 0.5 * LOG_TWO_PI
        odds = log_narrow - log_wide + math.log(wide) - math.log(narrow)
        return at_zero, 0.5 / wide**2, 0.5 / wide**2 - 0.5 / narrow**2, odds

    def _log_standard(self, z: Tensor) -> Tensor:
        return log_mixture(z, *self.constants)

    def _standard_draws(self, keys: Tensor, size: int, start: int) -> Tensor:
        wide = noise.uniform(keys, size, _FIRST_UNIFORM + start) < self.pi
        return noise.normal(keys, size, start) * torch.where(wide, self.sigma1, self.sigma2)


def log_mixture(z: Tensor, at_zero: Number, decay: Number, difference: Number, odds: Number) -> Tensor:
    """The log density of a mixture of two Gaussians around zero, elementwise.

    log(e^a + e^b) = a + softplus(b - a), one exponential forward and backward; with a the wider component, b - a is
    bounded above, and what is far below vanishes as it should.
    """
    squared = z * z
    return at_zero - squared * decay + functional.softplus(squared * difference + odds)


# Normals count pairs of elements from zero, below 2^30; uniforms start further out, so that no two of the
# numbers behind one network's draw are the same hash, whichever families its weights belong to.
_FIRST_UNIFORM = 1 << 30
_SECOND_UNIFORM = 3 << 29


def _two_uniforms(keys: Tensor, size: int, start: int) -> tuple[Tensor, Tensor]:
    first = noise.uniform(keys, size, _FIRST_UNIFORM + start)
    return first, noise.uniform(keys, size, _SECOND_UNIFORM + start)
