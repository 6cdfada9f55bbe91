"""The mass beyond the edge of a grid: a log density extrapolated by its slope s and curvature c at the edge.

    c < 0   exp(s t + c t^2 / 2)              a Gaussian tail
    c = 0   exp(s t)                          an exponential tail
    c > 0   (1 + t / u)^-m, u = -s / c, m = s^2 / c    a power law with that slope and curvature

Each is exact for its family. A tail that does not fall, or falls no faster than 1 / t, has infinite mass.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_NODES = 32
_NEGLIGIBLE = 40.0  # a tail ends where the density is exp(-40) of that at the edge


def slope_and_curvature(log_density: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Outward first and second derivative at the edge, by the parabola through the last three points.

    `log_density [3, lines]` at `points [3]`, both from the edge inwards.
    """
    first, second = (points[0] - points[1]).abs(), (points[1] - points[2]).abs()
    outer, inner = (log_density[0] - log_density[1]) / first, (log_density[1] - log_density[2]) / second
    bend = (outer - inner) / (first + second)
    return outer + bend * first, 2 * bend


def tail(start: Tensor, slope: Tensor, curvature: Tensor, room: float) -> tuple[Tensor, Tensor]:
    """Distances beyond the edge and the masses there, `[lines, nodes]`, of tails of log density `start` at the edge.

    A tail ends after `room`, where the parameter is bounded.
    """
    nodes, weights = (torch.as_tensor(values) for values in np.polynomial.legendre.leggauss(_NODES))
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights
    if room <= 0:
        return torch.zeros(len(start), _NODES, dtype=torch.float64), torch.zeros(len(start), _NODES).double()
    known = slope.isfinite() & curvature.isfinite()
    slope, curvature = torch.where(known, slope, 0.0), torch.where(known, curvature, 0.0)
    distance, mass = _gaussian_tail(slope, -curvature.clamp(max=0), room, nodes, weights)
    heavy = (curvature > 0) & (slope < 0)
    if bool(heavy.any()):
        far, heavy_mass = _power_tail(slope[heavy], curvature[heavy], room, nodes, weights)
        distance[heavy], mass[heavy] = far, heavy_mass
    # A density of zero at the edge has no tail, whatever its slope.
    return distance, torch.where(start.unsqueeze(-1) > -torch.inf, start.exp().unsqueeze(-1) * mass, 0.0)


def _gaussian_tail(
    slope: Tensor, precision: Tensor, room: float, nodes: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    root = (slope.square() + 2 * _NEGLIGIBLE * precision).sqrt()
    # Two forms of the larger root of precision t^2 / 2 - slope t = 40, each used where no digits cancel.
    falling, rising = 2 * _NEGLIGIBLE / (root - slope), (slope + root) / precision
    end = torch.where(slope < 0, falling, rising)
    end = torch.where(end.isfinite(), end, torch.inf).clamp(max=room)
    endless = end.isinf()
    distance = torch.where(endless, 0.0, end).unsqueeze(-1) * nodes
    exponent = slope.unsqueeze(-1) * distance - 0.5 * precision.unsqueeze(-1) * distance.square()
    return distance, torch.where(endless.unsqueeze(-1), torch.inf, exponent.exp() * end.unsqueeze(-1) * weights)


def _power_tail(slope: Tensor, curvature: Tensor, room: float, nodes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    unit, power = -slope / curvature, slope.square() / curvature
    endless = (power <= 1) & torch.tensor(math.isinf(room))
    rate = torch.where(endless, 1.0, power - 1)
    rate = torch.where(rate.abs() < 1e-9, 1e-9, rate)
    # The share of the mass within the room, and nodes spaced evenly in mass: t = unit ((1 - share v)^(-1 / rate) - 1).
    share = -torch.expm1(-rate * torch.log1p(torch.full_like(unit, room) / unit))
    distance = unit.unsqueeze(-1) * torch.expm1(-torch.log1p(-share.unsqueeze(-1) * nodes) / rate.unsqueeze(-1))
    mass = (unit / rate * share).unsqueeze(-1) * weights
    return distance, torch.where(endless.unsqueeze(-1), torch.inf, mass)
