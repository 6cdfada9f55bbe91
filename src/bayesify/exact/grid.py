"""The posterior of one or two parameters on a grid, with an estimate of the grid's error.

    p(theta_i | data) = exp(log p(data | theta_i) + log p(theta_i)) * width_i / evidence

Each point stands for a cell that reaches half way to its neighbours (the midpoint rule, whose error is of order
spacing^2). `truncation_error` estimates two errors separately: that of the spacing, by halving every cell (Richardson:
the error is 4/3 of the change), and that of the mass beyond the edges, by extrapolating the log density with its slope
and curvature there (`grid_tails.py`).
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
from bayesify.exact.grid_tails import slope_and_curvature, tail

OfParameters = Callable[..., Any]


@dataclass(frozen=True)
class TruncationError:
    """The estimated error of a number computed on a grid; subtract `total` from the number to correct it.

    Args:
        spacing: the error that a finer grid would remove.
        edges: the error that a wider grid would remove.
        mass_beyond: posterior mass beyond the edges, relative to the mass on the grid; infinite where the density
            does not fall towards an edge without a bound.

    Examples:
        >>> grid = bf.exact.Grid(lambda theta: -0.5 * theta**2, theta=torch.linspace(-3, 3, 13))
        >>> error = grid.truncation_error("log_evidence")
        >>> round(float(error.total), 4), round(error.mass_beyond, 4)
        (-0.001, 0.0012)

    """

    spacing: Tensor
    edges: Tensor
    mass_beyond: float

    @property
    def total(self) -> Tensor:
        """The error of spacing and edges together."""
        return self.spacing + self.edges


class Grid:
    """The posterior of one or two named parameters on a grid.

    Args:
        log_likelihood: a function that takes the parameters by name, one number each, and returns one number. Torch
            code is evaluated at all points together, other code point by point.
        log_prior: the normalised log prior density, a function like `log_likelihood`. Without it the prior is uniform
            over the bounds, or over the cells of the grid.
        bounds: the range of a parameter, such as `{"theta": (0, 1)}`. Cells end there, and there is no mass beyond.
        parameters: the points of each parameter, increasing.

    Raises:
        ValueError: there are more than two parameters, a grid is not increasing, or the density is not finite on it.

    Examples:
        The posterior of a coin after 7 heads and 3 tails; the exact mean is 2/3.

        >>> def log_likelihood(theta):
        ...     return 7 * theta.log() + 3 * (1 - theta).log()
        >>> grid = bf.exact.Grid(log_likelihood, theta=torch.linspace(0.005, 0.995, 100), bounds={"theta": (0, 1)})
        >>> grid.mean
        tensor([0.6667], dtype=torch.float64)

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
        # The edges of each parameter's cells, [points + 1].
        self.cell_edges = [_cell_edges(self.points[name], self.bounds[name]) for name in self.names]
        self._log_joint, self._log_mass = self._evaluate(list(self.points.values()), self.cell_edges)
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
        """The posterior probability of each cell of one parameter.

        Args:
            name: the parameter.

        Returns:
            Probabilities that sum to 1, `[points]`.

        """
        if name not in self.names:
            raise ValueError(f"unknown parameter {name!r}{nearest(name, self.names)}")
        others = [axis for axis, other in enumerate(self.names) if other != name]
        return self.weights.sum(others) if others else self.weights

    def density(self, name: str) -> Tensor:
        """The marginal posterior density at the points of one parameter.

        Args:
            name: the parameter.

        Returns:
            The density, `[points]`.

        """
        return self.marginal(name) / self.cell_edges[self.names.index(name)].diff()

    def expectation(self, function: OfParameters) -> Tensor:
        """The posterior mean of a function of the parameters.

        Args:
            function: takes the parameters by name, one number each, and returns one number.

        Returns:
            The mean, a tensor without dimensions.

        """
        return _weighted(self.weights, self._values(function, list(self.points.values())))

    def predictive(self, log_density: OfParameters, outcomes: Any) -> Tensor:
        """The posterior predictive density of some outcomes, `E[p(y | parameters)]`.

        Args:
            log_density: `log_density(y, **parameters)` returns `log p(y | parameters)`.
            outcomes: the outcomes y, `[n]`.

        Returns:
            The density of each outcome, `[n]`.

        """
        densities = [
            self.expectation(lambda y=y, **parameters: _exp(log_density(y, **parameters)))
            for y in torch.as_tensor(outcomes, dtype=torch.float64).reshape(-1)
        ]
        return torch.stack(densities)

    def truncation_error(self, of: OfParameters | str | None = None) -> TruncationError:
        """Estimate the error that the grid makes.

        Args:
            of: the number in question: None for the posterior means of the parameters, a function of the parameters for
                its posterior mean, or `"log_evidence"`.

        Returns:
            A `TruncationError`; its tensors are `[parameters]` where `of` is None.

        """
        if isinstance(of, str):
            choose("quantity", of, ("log_evidence",))
        finer = [_halved(edges) for edges in self.cell_edges]
        points = [edges[:-1] + edges.diff() / 2 for edges in finer]
        log_mass = self._evaluate(points, finer)[1]
        fine_evidence = torch.logsumexp(log_mass.flatten(), 0)
        evidence_error = 4 / 3 * (self.log_evidence - fine_evidence)
        # The mass of the tails is relative to the mass inside, corrected for the error of the spacing.
        tails = [(where, beyond * evidence_error.exp()) for where, beyond in self._tails()]
        mass = math.fsum(float(beyond.sum()) for _, beyond in tails)
        if isinstance(of, str):
            return TruncationError(evidence_error, torch.tensor(-math.log1p(mass), dtype=torch.float64), mass)
        coarse = self._mean_of(of, list(self.points.values()), self.weights)
        spacing = 4 / 3 * (coarse - self._mean_of(of, points, (log_mass - fine_evidence).exp()))
        edges = torch.full_like(coarse, 0.0 if math.isfinite(mass) else math.inf)
        for where, beyond in tails if math.isfinite(mass) else []:
            has_mass = beyond > 0
            points_beyond = [coordinates[has_mass] for coordinates in where]
            if not bool(has_mass.any()):
                continue
            values = torch.stack(points_beyond) if of is None else _at(of, self.names, points_beyond).unsqueeze(0)
            # The mean inside minus the mean with the tails: m (E_inside - E_tail) / (1 + m), tail by tail.
            edges += (((coarse - spacing).unsqueeze(-1) - values) * (beyond[has_mass] / (1 + mass))).sum(-1)
        return TruncationError(spacing, edges, mass) if of is None else TruncationError(spacing[0], edges[0], mass)

    def _mean_of(self, of: OfParameters | None, points: list[Tensor], weights: Tensor) -> Tensor:
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
            coordinates = zip(self.names, wrong[0].tolist(), points, strict=True)
            place = ", ".join(f"{name}={values[index].item():g}" for name, index, values in coordinates)
            value = log_joint[tuple(wrong[0])].item()
            raise ValueError(f"the log density is {value} at {place}: choose grid points where it is finite")
        log_mass = log_joint
        for axis, cell_edges in enumerate(edges):
            shape = [-1 if other == axis else 1 for other in range(len(edges))]
            log_mass = log_mass + cell_edges.diff().log().view(shape)
        return log_joint, log_mass

    def _values(self, function: OfParameters, points: list[Tensor]) -> Tensor:
        axes = torch.meshgrid(*points, indexing="ij")
        return _at(function, self.names, [axis.flatten() for axis in axes]).view(axes[0].shape)

    def _range(self, axis: int) -> float:
        low, high = self.bounds[self.names[axis]]
        edges = self.cell_edges[axis]
        return (high - low) if math.isfinite(high - low) else float(edges[-1] - edges[0])

    def _tails(self) -> list[tuple[list[Tensor], Tensor]]:
        """For each edge: points beyond it, one tensor for each parameter, and their masses relative to the grid's."""
        tails = []
        for axis, last in itertools.product(range(len(self.names)), (False, True)):
            points, low, high = self.points[self.names[axis]], *self.bounds[self.names[axis]]
            log_density = self._log_joint.movedim(axis, 0).reshape(len(points), -1)
            last_three = [-1, -2, -3] if last else [0, 1, 2]
            end = self.cell_edges[axis][-1 if last else 0]
            slope, curvature = slope_and_curvature(log_density[last_three], points[last_three])
            step = (end - points[last_three[0]]).abs()
            change = torch.where(slope.isfinite(), slope * step + 0.5 * curvature.clamp(max=0) * step**2, 0.0)
            room = high - float(end) if last else float(end) - low
            start, edge_slope = log_density[last_three[0]] + change, slope + curvature.clamp(max=0) * step
            distance, mass = tail(start - self.log_evidence, edge_slope, curvature, room)
            position = end + distance if last else end - distance
            others = [index for index in range(len(self.names)) if index != axis]
            where = {axis: position.flatten()}
            for other in others:
                mass = mass * self.cell_edges[other].diff().unsqueeze(-1)
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
    # A function may be infinite where there is no mass: 0 * inf would be NaN.
    return torch.where(weights > 0, weights * values, 0.0).sum()


def _at(function: OfParameters, names: Sequence[str], where: Sequence[Tensor]) -> Tensor:
    """A function of the parameters at points `[n]` of each: together where it is torch code, else one by one."""

    def at_one_point(*values: Tensor) -> Tensor:
        return torch.as_tensor(function(**dict(zip(names, values, strict=True))), dtype=torch.float64).reshape(())

    try:
        return vmap(at_one_point)(*where)
    except Exception:  # noqa: BLE001 -- code that is not torch's takes plain numbers
        rows = zip(*(coordinates.tolist() for coordinates in where), strict=True)
    try:
        values = [float(function(**dict(zip(names, row, strict=True)))) for row in rows]
    except (TypeError, RuntimeError) as problem:
        raise ValueError(
            f"the function must take {', '.join(names)} by name and return one number: {first_line(problem)}"
        ) from problem
    return torch.tensor(values, dtype=torch.float64)


def _exp(value: Any) -> Any:
    return value.exp() if isinstance(value, Tensor) else math.exp(value)
