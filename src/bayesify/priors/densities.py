"""The proper priors: Normal, Laplace, Cauchy, Student's t and the scale mixture.

The KL from a Gaussian has a closed form for Normal and for Laplace, where `E|w - m|` is the mean of a folded normal.
For the others it is estimated by Monte Carlo, as in C. Blundell, J. Cornebise, K. Kavukcuoglu and D. Wierstra, "Weight
Uncertainty in Neural Networks", 2015, arXiv:1505.05424.
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
    """The normal prior, `p(w) = exp(-((w - mean) / scale)^2 / 2) / (scale sqrt(2 pi))`.

    Args:
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.
        mean: the location.

    Examples:
        >>> prior = bf.priors.Normal(0.5)
        >>> prior.log_density(torch.tensor([0.0, 1.0]))
        tensor([-0.2258, -2.2258])
        >>> prior.closed_kl(torch.tensor(0.0), torch.tensor(0.5))
        tensor(0.)

    """

    name = "normal"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """`((mean - m)^2 + std^2) / (2 scale^2) - 1/2 - log(std / scale)` of each weight.

        Args:
            mean: the posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: the prior's scale, broadcasts against the means; the prior's own unless given.
            prior_mean: the prior's location m, likewise.

        Returns:
            A tensor of the shape of `mean`.

        """
        scale, prior_mean = self._or_defaults(scale, prior_mean)
        distance = divide(subtract(mean, prior_mean), scale)
        ratio = divide(std, scale)
        return 0.5 * (distance * distance + ratio * ratio - 1.0) - torch.log(ratio)

    def log_standard(self, z: Tensor) -> Tensor:
        """`-z^2 / 2 - log(2 pi) / 2`.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        return -0.5 * (z * z) - 0.5 * LOG_TWO_PI

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Standard normals, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        return noise.normal(keys, size, start)


@dataclass(frozen=True)
class Laplace(LocationScale):
    """The Laplace prior, `p(w) = exp(-|w - mean| / scale) / (2 scale)`: more mass at the mean than the normal.

    Args:
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.
        mean: the location.

    Examples:
        >>> bf.priors.Laplace(1.0).log_density(torch.tensor([0.0, 3.0]))
        tensor([-0.6931, -3.6931])

    """

    name = "laplace"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """`log(2 scale) + E|w - m| / scale - entropy` of each weight; `|w - m|` is a folded normal.

        Args:
            mean: the posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: the prior's scale, broadcasts against the means; the prior's own unless given.
            prior_mean: the prior's location m, likewise.

        Returns:
            A tensor of the shape of `mean`.

        """
        scale, prior_mean = self._or_defaults(scale, prior_mean)
        distance = subtract(mean, prior_mean)
        standardised = distance / std
        near = math.sqrt(2 / math.pi) * std * torch.exp(-0.5 * standardised * standardised)
        far = distance * torch.erf(math.sqrt(0.5) * standardised)
        constant = math.log(2) - HALF_LOG_TWO_PI_E
        return divide(near + far, scale) - torch.log(divide(std, scale)) + constant

    def log_standard(self, z: Tensor) -> Tensor:
        """`-|z| - log 2`.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        return -z.abs() - math.log(2)

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Differences of two standard exponentials, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        # The difference of two exponentials is exactly symmetric; an inverse distribution function in float32 is not.
        first, second = two_uniform_draws(keys, size, start)
        return torch.log(first) - torch.log(second)


@dataclass(frozen=True)
class Cauchy(LocationScale):
    """The Cauchy prior, `p(w) = 1 / (pi scale (1 + ((w - mean) / scale)^2))`: tails so heavy that it has no variance.

    Args:
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.
        mean: the location.

    Examples:
        >>> bf.priors.Cauchy(1.0).log_density(torch.tensor([0.0, 100.0]))
        tensor([ -1.1447, -10.3552])

    """

    name = "cauchy"
    approximate = "KL by Monte Carlo"

    scale: Scale = 1.0
    mean: float = 0.0

    def __post_init__(self) -> None:
        check_location_and_scale(self)

    def log_standard(self, z: Tensor) -> Tensor:
        """`-log(1 + z^2) - log(pi)`.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        return -torch.log1p(z * z) - math.log(math.pi)

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Standard Cauchy draws, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        # The cotangent of the nearer end keeps both tails; tan(pi (u - 1/2)) would round them off in float32.
        u = uniform_draws(keys, size, start)
        return torch.copysign(1.0 / torch.tan(math.pi * torch.minimum(u, 1.0 - u)), 0.5 - u)


@dataclass(frozen=True)
class StudentT(LocationScale):
    """Student's t prior: Cauchy at one degree of freedom, close to the normal at many.

    `p(w) = c (1 + z^2 / df)^(-(df + 1) / 2) / scale` with `z = (w - mean) / scale` and
    `c = Gamma((df + 1) / 2) / (Gamma(df / 2) sqrt(df pi))`.

    Args:
        df: degrees of freedom, above zero.
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.
        mean: the location.

    Examples:
        >>> bf.priors.StudentT(df=3).log_density(torch.tensor([0.0, 100.0]))
        tensor([ -1.0009, -17.2249])

    """

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
        """The type and the degrees of freedom."""
        return (type(self), self.df)

    def log_standard(self, z: Tensor) -> Tensor:
        """`log c - (df + 1) / 2 log(1 + z^2 / df)` at mean 0 and scale 1.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        df = self.df
        # At large df the two log-gammas cancel all their digits; a short series gives their difference.
        gammas = (
            math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
            if df < 1e4
            else 0.5 * math.log(df / 2) - 1 / (4 * df) + 1 / (24 * df**3)
        )
        return gammas - 0.5 * math.log(df * math.pi) - (df + 1) / 2 * torch.log1p(z * z / df)

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Draws at mean 0 and scale 1, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        # R. Bailey, "Polar generation of random variates with the t-distribution", 1994: the Box-Muller radius, with
        # its logarithm replaced by a power, gives Student's t.
        first, second = two_uniform_draws(keys, size, start)
        radius = torch.sqrt(self.df * torch.expm1(-2.0 / self.df * torch.log(first)))
        return radius * torch.cos(2 * math.pi * second)


@dataclass(frozen=True)
class ScaleMixture(LocationScale):
    """A mixture of a wide and a narrow normal, `p(w) = pi N(w; mean, sigma1^2) + (1 - pi) N(w; mean, sigma2^2)`.

    The narrow part pulls weights towards the mean, the wide part leaves room for a few large ones (C. Blundell et al.,
    "Weight Uncertainty in Neural Networks", 2015, arXiv:1505.05424).

    Args:
        pi: the share of the first normal, strictly between 0 and 1.
        sigma1: the standard deviation of the first normal.
        sigma2: the standard deviation of the second normal.
        mean: the location of both.

    Examples:
        >>> prior = bf.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.01)
        >>> prior.log_density(torch.tensor([0.0, 0.1, 1.0]))
        tensor([ 3.0030, -1.6171, -2.1121])

    """

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
        """The type, the share and both standard deviations."""
        return (type(self), self.pi, self.sigma1, self.sigma2)

    @property
    def constants(self) -> tuple[float, float, float, float]:
        """The arguments of `log_mixture`: log density of the wide part at zero, its decay, difference and odds."""
        components = [(self.sigma1, math.log(self.pi)), (self.sigma2, math.log1p(-self.pi))]
        (wide, log_wide), (narrow, log_narrow) = sorted(components, reverse=True)
        at_zero = log_wide - math.log(wide) - 0.5 * LOG_TWO_PI
        odds = log_narrow - log_wide + math.log(wide) - math.log(narrow)
        return at_zero, 0.5 / wide**2, 0.5 / wide**2 - 0.5 / narrow**2, odds

    def log_standard(self, z: Tensor) -> Tensor:
        """The log density of the mixture around zero.

        Args:
            z: standardised weights, any shape.

        Returns:
            A tensor of the shape of `z`.

        """
        return log_mixture(z, *self.constants)

    def sample_standard(self, keys: Tensor, size: int, start: int) -> Tensor:
        """Draws of the mixture around zero, one set for each key.

        Args:
            keys: noise keys `[..., 2]`.
            size: how many weights.
            start: the first weight's place in the flat vector.

        Returns:
            Draws `[..., size]`.

        """
        wide = uniform_draws(keys, size, start) < self.pi
        return noise.normal(keys, size, start) * torch.where(wide, self.sigma1, self.sigma2)


def log_mixture(z: Tensor, at_zero: Number, decay: Number, difference: Number, odds: Number) -> Tensor:
    """The log density of a mixture of two Gaussians around zero, elementwise.

    log(e^a + e^b) = a + softplus(b - a) takes one exponential forward and one backward. With a the wider component,
    b - a is bounded above, so the softplus cannot overflow.
    """
    squared = z * z
    return at_zero - squared * decay + functional.softplus(squared * difference + odds)


# Normals use the places from zero, below 2^30. Uniforms start further out, so that no two random numbers of one draw
# of a network come from the same hash, whatever the families of its weights.
_FIRST_UNIFORM = 1 << 30
_SECOND_UNIFORM = 3 << 29


def uniform_draws(keys: Tensor, size: int, start: int) -> Tensor:
    """Uniform numbers between 0 and 1 for the weights `start ... start + size - 1`: `[..., 2]` -> `[..., size]`."""
    return noise.uniform(keys, size, _FIRST_UNIFORM + start)


def two_uniform_draws(keys: Tensor, size: int, start: int) -> tuple[Tensor, Tensor]:
    """Two independent sets of `uniform_draws`."""
    return uniform_draws(keys, size, start), noise.uniform(keys, size, _SECOND_UNIFORM + start)
