"""Moons and circles without sampling: points on two curves of the plane, moved by Gaussian noise of known width.

    p(x | class) = mean over the curve's t of N(x; curve(t), noise^2 I),      classes equally likely

so the class probabilities, the accuracy and the negative log-likelihood that no classifier can beat, and what any given
one falls short of them, are integrals over the plane: here sums over a grid, without a test set and its noise. The
curves are those of scikit-learn's `make_moons` and `make_circles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesify.errors import at_least, positive

# Trapezoids converge exponentially on a closed curve, and far below what the noise can tell on an open one.
_NODES = 512
_REACH = 5.0


@dataclass(frozen=True)
class Curves:
    """Two curves `[nodes, 2]` with quadrature weights that sum to one each, and the noise around them."""

    curves: tuple[Tensor, Tensor]
    weights: Tensor
    noise: float

    def log_density(self, x: Tensor) -> Tensor:
        """The log density of points given each class, `[n, 2]` -> `[n, 2]` float64."""
        x = x.double()
        constant = math.log(2 * math.pi * self.noise**2)
        columns = []
        for curve in self.curves:
            parts = []
            for some in x.split(4096):
                # The square written out: one product instead of [n, nodes, 2] differences.
                away = some.square().sum(1, keepdim=True) - 2 * some @ curve.T + curve.square().sum(1)
                parts.append(torch.logsumexp(self.weights.log() - away / (2 * self.noise**2), 1) - constant)
            columns.append(torch.cat(parts))
        return torch.stack(columns, 1)

    def probs(self, x: Tensor) -> Tensor:
        """P(class | x), `[n, 2]` -> `[n, 2]` float64."""
        return torch.softmax(self.log_density(x), 1)

    def plane(self, side: int = 120) -> Plane:
        """A grid of `side` by `side` cells that holds all but a millionth of the points."""
        at_least("side", side, 2)
        both = torch.cat(self.curves)
        low, high = both.amin(0) - _REACH * self.noise, both.amax(0) + _REACH * self.noise
        middle = (torch.arange(side, dtype=torch.float64) + 0.5) / side
        across, up = (low[i] + (high[i] - low[i]) * middle for i in (0, 1))
        points = torch.stack(torch.meshgrid(across, up, indexing="xy"), -1).reshape(-1, 2)
        log_density = self.log_density(points)
        mass = log_density.exp().mean(1) * ((high - low) / side).prod()
        return Plane(points, torch.softmax(log_density, 1), mass / mass.sum())


@dataclass(frozen=True)
class Plane:
    """The points of a grid `[n, 2]`, the classes' probabilities there `[n, 2]`, and the share of points at each."""

    points: Tensor
    probs: Tensor
    mass: Tensor

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the most probable class, which nothing beats."""
        return float(self.mass @ self.probs.amax(1))

    @property
    def best_nll(self) -> float:
        """The negative log-likelihood of the true probabilities, in nats, which nothing beats."""
        return float(self.mass @ torch.special.entr(self.probs).sum(1))

    def accuracy(self, probs: Tensor) -> float:
        """The expected accuracy of answers `[n, 2]` at the points."""
        label = probs.argmax(1, keepdim=True).to(self.probs.device)
        return float(self.mass @ self.probs.gather(1, label)[:, 0])

    def nll(self, probs: Tensor) -> float:
        """The expected negative log-likelihood of answers `[n, 2]` at the points, in nats."""
        return float(-(self.mass @ torch.xlogy(self.probs, probs.to(self.probs)).sum(1)))


def moons(noise: float) -> Curves:
    """Two half circles, one the other's turned and moved into it."""
    t = torch.linspace(0, math.pi, _NODES, dtype=torch.float64)
    upper = torch.stack((torch.cos(t), torch.sin(t)), 1)
    lower = torch.stack((1 - torch.cos(t), 0.5 - torch.sin(t)), 1)
    weights = torch.ones(_NODES, dtype=torch.float64)
    weights[[0, -1]] = 0.5
    return Curves((upper, lower), weights / weights.sum(), positive("noise", noise))


def circles(noise: float, factor: float = 0.8) -> Curves:
    """A circle of radius one and, inside it, one of radius `factor`."""
    t = torch.arange(_NODES, dtype=torch.float64) * (2 * math.pi / _NODES)
    outer = torch.stack((torch.cos(t), torch.sin(t)), 1)
    weights = torch.full((_NODES,), 1 / _NODES, dtype=torch.float64)
    return Curves((outer, factor * outer), weights, positive("noise", noise))
