"""Bayes the hacker's way: a posterior over one or two parameters on a grid, with the error that the grid makes.

    p(theta_i | data) = exp(log p(data | theta_i) + log p(theta_i)) * width_i / evidence

Each point stands for a cell that reaches half way to its neighbours (the midpoint rule, whose error is of order
spacing^2). Two things go wrong, and `truncation_error` estimates them apart: the spacing, by halving every cell
(Richardson: the error is 4/3 of the change), and the mass beyond the edges, by carrying the log density on with its
slope and curvature there (`tails.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bayesify.errors import choose, first_line, nearest
from bayesify.exact.tails import slope_and_curvature, tail

OfParameters = Callable[..., Any]


@dataclass(frozen=True)
class TruncationError:
    """How far a grid's answer is from the truth, by its estimate: subtract both to correct the answer.

    Args:
        spacing: the part that a finer grid would remove.
        edges: the part that a wider grid would remove.
        mass_beyond: posterior mass beyond the edges, relative to the mass on the grid; infinite where the density
            does not fall towards an edge and no bound ends it.

    """

    spacing: Tensor
    edges: Tensor
    mass_beyond: float

    @property
    def total(self) -> Tensor:
        return self.spacing + self.edges


class Grid:
    """The posterior of one or two parameters, given by name: `Grid(f, theta=torch.linspace(0.05, 0.95, 19))`.

    Args:
        log_likelihood: a function of the parameters by name, each one number, that gives one number. Torch code is
            evaluated at all points together, anything else point by point.
        log_prior: likewise, normalised; without one the prior is uniform over the bounds, or over the grid's cells.
        bounds: where a parameter ends, as `{"theta": (0, 1)}`; cells stop there, and there is no mass beyond.
        parameters: the points of each parameter, increasing.

    """

    def __init__(
        self,
        log_likelihood: OfParameters,
        *,
        log_prior: OfParameters | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        **parameters: Any,
    ) -> None:
        if not 1 <= len(parameters) <= 2:
            raise ValueError(f"a grid has one or two parameters, got {len(parameters)}: use a sampler (HMC) for more")
        for name in bounds or {}:
            choose("parameter with bounds", name, parameters)
        self.names = tuple(parameters)
        self.bounds = {name: (bounds or {}).get(name, (-math.inf, math.inf)) for name in self.names}
        self.points = {name: _axis(name, points, self.bounds[name]) for name, points in parameters.items()}
        self._log_likelihood, self._log_prior = log_likelihood, log_prior
        self._edges = [_cell_edges(self.points[name], self.bounds[name]) for name in self.names]
        self._log_joint, self._log_mass = self._evaluate(list(self.points.values()), self._edges)
        self.log_evidence = float(torch.logsumexp(self._log_mass.flatten(), 0))
        if not math.isfinite(self.log_evidence):
            raise ValueError(
                f"the log density sums to {self.log_evidence} over the grid: choose points where it is finite"
            )
        self.weights = (self._log_mass - self.log_evidence).exp()

    @property
    def mean(self) -> Tensor:
        """The posterior mean of each parameter, `[parameters]`."""
        return torch.stack([self.marginal(name) @ self.points[name] for name in self.names])

    @property
    def covariance(self) -> Tensor:
        """The posterior covariance, `[parameters, parameters]`."""
        axes = torch.meshgrid(*self.points.values(), indexing="ij")
        centred = torch.stack([axis.flatten() for axis in axes]) - self.mean.unsqueeze(-1)
        return (centred * self.weights.flatten()) @ centred.mT

    @property
    def variance(self) -> Tensor:
        """The posterior variance of each parameter, `[parameters]`."""
        return self.covariance.diagonal()

    def marginal(self, name: str) -> Tensor:
        """The posterior probability of one parameter's cells, `[points]`; they sum to one."""
        if name not in self.names:
            raise ValueError(f"no parameter is called {name!r}{nearest(name, self.names)}")
        others = [axis for axis, other in enumerate(self.names) if other != name]
        return self.weights.sum(others) if others else self.weights

    def density(self, name: str) -> Tensor:
        """The marginal posterior density at one parameter's points, `[points]`."""
        return self.marginal(name) / self._edges[self.names.index(name)].diff()

    def expectation(self, function: OfParameters) -> Tensor:
        """The posterior mean of a function of the parameters."""
        return _weighted(self.weights, self._values(function, list(self.points.values())))

    def predictive(self, log_density: OfParameters, outcomes: Any) -> Tensor:
        """The posterior mean density of each outcome: `log_density(y, **parameters)` averaged over the grid."""
        chances = [
            self.expectation(lambda y=y, **parameters: _exp(log_density(y, **parameters)))
            for y in torch.as_tensor(outcomes, dtype=torch.float64).reshape(-1)
        ]
        return torch.stack(chances)

    def truncation_error(self, of: OfParameters | str | None = None) -> TruncationError:
        """What the grid does to the parameters' means (by default), a function's mean, or the `log_evidence`."""
        if isinstance(of, str):
            choose("quantity", of, ("log_evidence",))
        finer = [_halved(edges) for edges in self._edges]
        points = [edges[:-1] + edges.diff() / 2 for edges in finer]
        log_mass = self._evaluate(points, finer)[1]
        fine_evidence = torch.logsumexp(log_mass.flatten(), 0)
        evidence_error = 4 / 3 * (self.log_evidence - fine_evidence)
        # Tails are weighed against the mass inside, the spacing's error in that mass taken away.
        tails = [(where, beyond * evidence_error.exp()) for where, beyond in self._tails()]
        mass = math.fsum(float(beyond.sum()) for _, beyond in tails)
        if isinstance(of, str):
            return TruncationError(evidence_error, torch.tensor(-math.log1p(mass), dtype=torch.float64), mass)
        coarse = self._answer(of, list(self.points.values()), self.weights)
        spacing = 4 / 3 * (coarse - self._answer(of, points, (log_mass - fine_evidence).exp()))
        edges = torch.full_like(coarse, 0.0 if math.isfinite(mass) else math.inf)
        for where, beyond in tails if math.isfinite(mass) else []:
            held = beyond > 0
            there = [part[held] for part in where]
            if not bool(held.any()):
                continue
            values = torch.stack(there) if of is None else _at(of, self.names, there).unsqueeze(0)
            # What is inside less what it would be with the tails: m (E_inside - E_tail) / (1 + m), tail by tail.
            edges += (((coarse - spacing).unsqueeze(-1) - values) * (beyond[held] / (1 + mass))).sum(-1)
        return TruncationError(spacing, edges, mass) if of is None else TruncationError(spacing[0], edges[0], mass)

    def _answer(self, of: OfParameters | None, points: list[Tensor], weights: Tensor) -> Tensor:
        if of is not None:
            return _weighted(weights, self._values(of, points)).reshape(1)
        axes = torch.meshgrid(*points, indexing="ij")
        return torch.stack([_weighted(weights, axis) for axis in axes])

    def _evaluate(self, points: list[Tensor], edges: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Log joint density and log mass at every point of a grid with these cells."""
        log_joint = self._values(self._log_likelihood, points)
        if self._log_prior is not None:
            log_joint = log_joint + self._values(self._log_prior, points)
        else:
            log_joint = log_joint - sum(math.log(self._range(axis)) for axis in range(len(points)))
        wrong = (log_joint.isnan() | (log_joint == torch.inf)).nonzero()
        if len(wrong):
            given = zip(self.names, wrong[0].tolist(), points, strict=True)
            place = ", ".join(f"{name}={values[index].item():g}" for name, index, values in given)
            raise ValueError(f"the log density is {log_joint[tuple(wrong[0])].item()} at {place}: keep the grid inside")
        log_mass = log_joint
        for axis, own in enumerate(edges):
            shape = [-1 if other == axis else 1 for other in range(len(edges))]
            log_mass = log_mass + own.diff().log().view(shape)
        return log_joint, log_mass

    def _values(self, function: OfParameters, points: list[Tensor]) -> Tensor:
        axes = torch.meshgrid(*points, indexing="ij")
        return _at(function, self.names, [axis.flatten() for axis in axes]).view(axes[0].shape)

    def _range(self, axis: int) -> float:
        low, high = self.bounds[self.names[axis]]
        edges = self._edges[axis]
        return (high - low) if math.isfinite(high - low) else float(edges[-1] - edges[0])

    def _tails(self) -> list[tuple[list[Tensor], Tensor]]:
        """For each edge: points beyond it, one tensor for each parameter, and their masses relative to the grid's."""
        tails = []
        for axis, last in itertools.product(range(len(self.names)), (False, True)):
            own, low, high = self.points[self.names[axis]], *self.bounds[self.names[axis]]
            log_density = self._log_joint.movedim(axis, 0).reshape(len(own), -1)
            three = [-1, -2, -3] if last else [0, 1, 2]
            end = self._edges[axis][-1 if last else 0]
            slope, curvature = slope_and_curvature(log_density[three], own[three])
            step = (end - own[three[0]]).abs()
            carried = torch.where(slope.isfinite(), slope * step + 0.5 * curvature.clamp(max=0) * step**2, 0.0)
            room = high - float(end) if last else float(end) - low
            start, edge_slope = log_density[three[0]] + carried, slope + curvature.clamp(max=0) * step
            distance, mass = tail(start - self.log_evidence, edge_slope, curvature, room)
            position = end + distance if last else end - distance
            others = [index for index in range(len(self.names)) if index != axis]
            where = {axis: position.flatten()}
            for other in others:
                mass = mass * self._edges[other].diff().unsqueeze(-1)
                where[other] = self.points[self.names[other]].unsqueeze(-1).expand_as(mass).flatten()
            tails.append(([where[index] for index in range(len(self.names))], mass.flatten()))
        return tails


def _axis(name: str, points: Any, bounds: tuple[float, float]) -> Tensor:
    values = torch.as_tensor(points, dtype=torch.float64).cpu()
    if values.ndim != 1 or len(values) < 3 or not bool((values.diff() > 0).all()):
        raise ValueError(f"the grid of {name} must be at least 3 increasing numbers, got shape {list(values.shape)}")
    if not (bounds[0] <= values[0] and values[-1] <= bounds[1]):
        raise ValueError(f"the grid of {name} must lie inside its bounds {bounds}")
    return values


def _cell_edges(points: Tensor, bounds: tuple[float, float]) -> Tensor:
    inner = (points[1:] + points[:-1]) / 2
    first, last = 2 * points[:1] - inner[:1], 2 * points[-1:] - inner[-1:]
    return torch.cat((first, inner, last)).clamp(*bounds)


def _halved(edges: Tensor) -> Tensor:
    middles = (edges[1:] + edges[:-1]) / 2
    return torch.cat((torch.stack((edges[:-1], middles), 1).flatten(), edges[-1:]))


def _weighted(weights: Tensor, values: Tensor) -> Tensor:
    # Where there is no mass a function may be infinite: it does not count.
    return torch.where(weights > 0, weights * values, 0.0).sum()


def _at(function: OfParameters, names: Sequence[str], where: Sequence[Tensor]) -> Tensor:
    """A function of the parameters at points `[n]` of each: together where it is torch code, else one by one."""

    def one(*values: Tensor) -> Tensor:
        return torch.as_tensor(function(**dict(zip(names, values, strict=True))), dtype=torch.float64).reshape(())

    try:
        return vmap(one)(*where)
    except Exception:  # noqa: BLE001 -- code that is not torch's takes plain numbers
        rows = zip(*(part.tolist() for part in where), strict=True)
    try:
        found = [float(function(**dict(zip(names, row, strict=True)))) for row in rows]
    except (TypeError, RuntimeError) as problem:
        raise ValueError(
            f"the function must take {', '.join(names)} by name, one number each, and give one: {first_line(problem)}"
        ) from problem
    return torch.tensor(found, dtype=torch.float64)


def _exp(value: Any) -> Any:
    return value.exp() if isinstance(value, Tensor) else math.exp(value)
