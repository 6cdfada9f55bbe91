"""Means and variances of functions of independent Gaussians: ReLU, maximum, tanh, and others by quadrature.

With `a = m / s` for a normal of mean m and standard deviation s, `p = Phi(a)`, and the mean excess above and below,

    u = phi(a) + a p        d = phi(a) - a (1 - p)

a rectified normal has mean `m p + s phi(a)` and variance `s^2 (p - u d)` (Frey and Hinton 1999, rearranged), and the
larger of two independent ones (Clark 1961), now with `a = (m1 - m2) / s` and `s^2 = v1 + v2`, has mean
`m1 p + m2 (1 - p) + s phi(a)` and variance `v1 p + v2 (1 - p) - s^2 u d`. Nothing large is subtracted, so a narrow
normal far from the kink keeps its digits. What has no such form is integrated numerically.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Beyond this many standard deviations the tail of a normal is zero in any precision; and its square is finite.
FAR = 40.0
# Points half a standard deviation apart, out to four. For functions that bend on a scale below one standard deviation
# this rule is better than one of Gauss and Hermite with as many points, whose middle ones lie further apart.
_STEP, _STEPS = 0.5, 8
# A logistic density as two normals, weight and standard deviation each (the idea: Monahan and Stefanski 1992), fitted
# so that the moments of tanh are within 3e-6 for standard deviations from 2.
_LOGISTIC = ((0.21583726, 1.34373417), (0.78416274, 0.74279016))
_WIDE = 4.0


@dataclass(frozen=True)
class Gaussians:
    """Independent Gaussians `[batch, ...]`.

    Args:
        mean: their means.
        variance: their variances; None stands for numbers known exactly.
        slope: after a function of each alone, its mean derivative, by which it passes small changes on.
        fresh: after a layer with random weights, the part of the variance that these weights added.

    """

    mean: Tensor
    variance: Tensor | None = None
    slope: Tensor | None = None
    fresh: Tensor | None = None

    def each(self, function: Callable[[Tensor], Tensor]) -> Gaussians:
        """What a function that only moves elements (flatten) makes of means and variances alike."""
        return Gaussians(function(self.mean), None if self.variance is None else function(self.variance))


def rectified(mean: Tensor, variance: Tensor, below: float = 0.0) -> Gaussians:
    """`max(z, 0) + below * min(z, 0)`."""
    if not (mean.requires_grad or variance.requires_grad):
        centre, spread, slope = _rectified_in_place(mean, variance)
    else:
        std = root(variance)
        slope, density, product = _excess(mean / std)
        centre = torch.addcmul(mean * slope, std, density)
        spread = (slope - product).clamp(min=0.0) * variance
    if below == 0.0:
        return Gaussians(centre, spread, slope)
    # It is below * z + rest * max(z, 0); by Stein's lemma the covariance of the two is the slope times the variance.
    rest = 1.0 - below
    together = below * below + 2.0 * below * rest * slope
    return Gaussians(below * mean + rest * centre, rest * rest * spread + together * variance, below + rest * slope)


def larger(first: Gaussians, second: Gaussians) -> Gaussians:
    """The larger of two independent Gaussians, element by element (Clark 1961)."""
    assert first.variance is not None
    assert second.variance is not None
    total = first.variance + second.variance
    std = root(total)
    first_leads, density, product = _excess((first.mean - second.mean) / std)
    second_leads = 1.0 - first_leads
    mean = first.mean * first_leads + second.mean * second_leads + std * density
    spread = first.variance * first_leads + second.variance * second_leads - total * product
    return Gaussians(mean, spread.clamp(min=0.0))


def squashed(mean: Tensor, variance: Tensor) -> Gaussians:
    """`tanh(z)`: by the numerical rule while z is narrow; where it is wide, with `sech^2` as a mixture of normals."""
    narrow = integrated(torch.tanh, mean, variance.clamp(max=_WIDE))
    assert narrow.variance is not None
    centre, slope = torch.zeros_like(mean), torch.zeros_like(mean)
    for weight, std in _LOGISTIC:
        wide = (variance + std * std).rsqrt()
        standardised = mean * wide
        centre = centre + weight * torch.erf(math.sqrt(0.5) * standardised)
        slope = slope + weight * math.sqrt(2.0 / math.pi) * wide * torch.exp(-0.5 * standardised * standardised)
    # The mean square of tanh is one minus the mean of its slope, sech^2.
    spread = (1.0 - slope - centre * centre).clamp(min=0.0)
    is_wide = variance > _WIDE
    assert narrow.slope is not None
    return Gaussians(
        torch.where(is_wide, centre, narrow.mean),
        torch.where(is_wide, spread, narrow.variance),
        torch.where(is_wide, slope, narrow.slope),
    )


def integrated(function: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Gaussians:
    """Any function of one Gaussian, on evenly spaced points; exact for straight lines."""
    std, centre = root(variance), function(mean)
    first, second, along = torch.zeros_like(centre), torch.zeros_like(centre), torch.zeros_like(centre)
    # Differences from the value at the mean: a narrow Gaussian keeps the digits of its variance.
    for place, weight in _RULE:
        step = std * place
        up, down = function(mean + step) - centre, function(mean - step) - centre
        first = first + weight * (up + down)
        second = second + weight * (up * up + down * down)
        along = along + weight * place * (up - down)
    # By Stein's lemma the mean slope is the covariance with z over its variance.
    return Gaussians(centre + first, (second - first * first).clamp(min=0.0), along / std)


def root(variance: Tensor) -> Tensor:
    """The standard deviation; where nothing varies, a tiny one, with a gradient of zero."""
    return variance.clamp(min=least_variance(variance.dtype)).sqrt()


def least_variance(dtype: torch.dtype) -> float:
    """Far below rounding, and far above where its inverse, cubed in a gradient, would overflow."""
    return math.sqrt(torch.finfo(dtype).tiny)


def _excess(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`Phi(a)`, `phi(a)` and the product of the mean excess of a standard normal above -a and below it."""
    a = a.clamp(-FAR, FAR)
    density = torch.exp(-0.5 * (a * a)) * (1.0 / math.sqrt(2.0 * math.pi))
    below = 0.5 * torch.erfc(a * -math.sqrt(0.5))
    return below, density, (density + a * below) * (density - a * (1.0 - below))


def _rectified_in_place(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and slope of `max(z, 0)`, as above, with every temporary used again: half the time of new ones."""
    std = root(variance)
    a = (mean / std).clamp_(-FAR, FAR)
    density = (a * a).mul_(-0.5).exp_().mul_(1.0 / math.sqrt(2.0 * math.pi))
    slope = (a * -math.sqrt(0.5)).erfc_().mul_(0.5)
    under = (1.0 - slope).mul_(a).neg_().add_(density)
    product = a.mul_(slope).add_(density).mul_(under)
    centre = torch.mul(mean, slope, out=under).addcmul_(std, density)
    return centre, torch.sub(slope, product, out=product).clamp_(min=0.0).mul_(variance), slope


def _rule() -> list[tuple[float, float]]:
    """Places and weights of the positive points for a standard normal; the variance of the rule is one."""
    places = [_STEP * step for step in range(1, _STEPS + 1)]
    densities = [math.exp(-0.5 * place * place) for place in places]
    whole = 1.0 + 2.0 * sum(densities)
    square = 2.0 * sum(d * p * p for d, p in zip(densities, places, strict=True)) / whole
    return [(place / math.sqrt(square), density / whole) for place, density in zip(places, densities, strict=True)]


_RULE = _rule()
