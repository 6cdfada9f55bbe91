"""What warm-up adapts: the step size, the mass matrix and the length of trajectories, shared by all chains.

- Step size: dual averaging of the mean acceptance over the chains towards a target (M. Hoffman and A. Gelman, The
  No-U-Turn sampler, 2014).
- Mass matrix: M^-1 is the diagonal of the chains' pooled variances, estimated in windows that grow.
- Trajectory length T: ascent of ChEES, the change in the estimator of the expected square (M. Hoffman, A. Radul and
  P. Sountsov, An adaptive-MCMC scheme for setting trajectory lengths in Hamiltonian Monte Carlo, 2021),

      ChEES = E[(|q' - E q'|^2 - |q - E q|^2)^2] / 4,

  measured in coordinates in which the mass is one, with Adam on log T. Each trajectory has length u T, with u the next
  number of a Halton sequence, which avoids resonances.

All of it is frozen before the first draw that is kept.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayesify.methods.hmc.hamiltonian import Proposal, State

# Shares of warm-up: approaching the posterior, three windows for the mass matrix, then only the step size.
WINDOWS = (0.12, 0.28, 0.5, 0.85)


@dataclass
class DualAveraging:
    """A step size whose acceptance averages to a target."""

    target: float
    log_step: float
    log_centre: float = 0.0
    log_average: float = 0.0
    error: float = 0.0
    count: int = 0

    @classmethod
    def start(cls, step_size: float, target: float, ambition: float) -> DualAveraging:
        """Start the search at a step size that is about right; it is drawn towards `ambition` times that size."""
        return cls(target, math.log(step_size), math.log(ambition * step_size), math.log(step_size))

    @property
    def step_size(self) -> float:
        """The step size to try next."""
        return math.exp(self.log_step)

    @property
    def average(self) -> float:
        """The averaged step size, used after warm-up."""
        return math.exp(self.log_average)

    def update(self, acceptance: float) -> None:
        """Update after an iteration (Hoffman and Gelman's equation 6; a mean over chains needs half of their gain)."""
        self.count += 1
        share = 1.0 / (self.count + 10.0)
        self.error += share * (self.target - acceptance - self.error)
        self.log_step = self.log_centre - self.error * math.sqrt(self.count) / 0.1
        weight = self.count**-0.75
        self.log_average += weight * (self.log_step - self.log_average)


@dataclass
class TrajectoryLength:
    """The length T, in units of a unit-mass time, by Adam's ascent of ChEES on log T (without momentum)."""

    log_length: float = 0.0
    square: float = 0.0
    count: int = 0
    log_sum: float = 0.0
    summed: int = 0

    RATE, DECAY = 0.025, 0.95

    @property
    def length(self) -> float:
        return math.exp(self.log_length)

    def update(self, slope: float, shortest: float, longest: float) -> None:
        """Follow the slope of the criterion with respect to log T, within bounds."""
        if not math.isfinite(slope):
            return
        self.count += 1
        self.square = self.DECAY * self.square + (1 - self.DECAY) * slope * slope
        typical = math.sqrt(self.square / (1 - self.DECAY**self.count))
        if typical > 0:
            self.log_length += self.RATE * slope / typical
        self.log_length = min(max(self.log_length, math.log(shortest)), math.log(longest))
        self.log_sum += self.log_length
        self.summed += 1

    def start_averaging(self) -> None:
        """Start the average over."""
        self.log_sum, self.summed = 0.0, 0

    def settle(self) -> None:
        """Set log T to its average."""
        if self.summed:
            self.log_length = self.log_sum / self.summed


class PooledVariance:
    """The variance of every coordinate around its chain's mean, averaged over chains, from one pass (Welford 1962).

    The mean is that of each chain: chains of a network may be in different copies of the same mode (permuted units),
    and the distance between copies is unrelated to the width of one.
    """

    def __init__(self, position: Tensor) -> None:
        self.mean, self.sum, self.count = torch.zeros_like(position), torch.zeros_like(position), 0

    def add(self, position: Tensor) -> None:
        """Add the positions of one iteration, `[chains, size]`."""
        self.count += 1
        difference = position - self.mean
        self.mean += difference / self.count
        self.sum += difference * (position - self.mean)

    def measured(self, otherwise: Tensor) -> Tensor:
        """The variances `[size]` as they are, and `otherwise` where no chain has moved."""
        draws = self.sum.shape[0] * max(self.count - 1, 0)
        variance = self.sum.sum(0) / max(draws, 1)
        return torch.where(variance > 0, variance, otherwise)

    def shrunk(self, towards: Tensor) -> Tensor:
        """The variances `[size]`, shrunk towards those of the prior; less so with more draws."""
        draws = self.sum.shape[0] * max(self.count - 1, 0)
        variance = self.sum.sum(0) / max(draws, 1)
        return (draws * variance + 5.0 * towards) / (draws + 5.0)


@dataclass
class Adaptation:
    """Everything that warm-up adapts, and the windows in which it does so."""

    warm_up: int
    step: DualAveraging
    length: TrajectoryLength
    inverse_mass: Tensor
    prior_variance: Tensor | None
    longest: int = 1000
    variance: PooledVariance | None = None
    windows: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        self.windows = tuple(round(share * self.warm_up) for share in WINDOWS)

    def step_size(self, iteration: int) -> float:
        """The step size for an iteration."""
        return self.step.step_size if iteration < self.warm_up else self.step.average

    def steps(self, iteration: int) -> int:
        """How many leapfrog steps an iteration's trajectories have."""
        length = halton(iteration + 1) * self.length.length
        # Far from the posterior long trajectories are wasted: the first window only has to approach it.
        longest = min(self.longest, 32) if iteration < self.windows[0] else self.longest
        return min(max(1, math.ceil(length / self.step_size(iteration))), longest)

    def learn(self, iteration: int, start: State, proposal: Proposal, after: State, steps: int) -> None:
        """Adapt after a warm-up iteration: trajectories went from `start` to `proposal`; the chains are at `after`."""
        step_size = self.step_size(iteration)
        self.step.update(float(proposal.acceptance.mean()))
        first, last = self.windows[0], self.windows[-1]
        if first <= iteration < last:
            slope = steps * step_size * chees_slope(start, proposal, self.inverse_mass)
            self.length.update(slope, step_size, step_size * self.longest)
            if self.variance is None:
                self.variance = PooledVariance(after.position)
            self.variance.add(after.position)
        if iteration + 1 in self.windows:
            self._close_window(iteration + 1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers that `restore` loads."""
        tensors = {"inverse_mass": self.inverse_mass}
        numbers: dict[str, Any] = {"step": asdict(self.step), "length": asdict(self.length), "count": None}
        if self.variance is not None:
            tensors |= {"variance_mean": self.variance.mean, "variance_sum": self.variance.sum}
            numbers["count"] = self.variance.count
        return tensors, numbers

    def restore(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Load what `state` returned."""
        self.inverse_mass = tensors["inverse_mass"].to(self.inverse_mass)
        self.step, self.length = DualAveraging(**numbers["step"]), TrajectoryLength(**numbers["length"])
        self.variance = None
        if numbers["count"] is not None:
            mean = tensors["variance_mean"].to(self.inverse_mass)
            self.variance = PooledVariance(mean)
            self.variance.mean, self.variance.sum = mean, tensors["variance_sum"].to(self.inverse_mass)
            self.variance.count = numbers["count"]

    def _close_window(self, iteration: int) -> None:
        if self.variance is not None and self.variance.count > 1:
            towards = self.prior_variance
            if towards is None:
                self.inverse_mass = self.variance.measured(self.inverse_mass)
            else:
                self.inverse_mass = self.variance.shrunk(towards)
        self.variance = None
        if iteration == self.windows[-1]:
            self.length.settle()
        else:
            self.length.start_averaging()
        self.step = DualAveraging.start(self.step.average, self.step.target, ambition=2.0)


def chees_slope(start: State, proposal: Proposal, inverse_mass: Tensor) -> float:
    """The slope of ChEES with respect to the time at the end, averaged over the chains by their acceptance."""
    weight = torch.where(proposal.diverging, 0.0, proposal.acceptance)
    if not float(weight.sum()) > 0:
        return 0.0
    fine, scale = (weight > 0).unsqueeze(-1), inverse_mass.double().sqrt()
    before = start.position.double() / scale
    after = torch.where(fine, proposal.end.position.double() / scale, before)
    speed = torch.where(fine, proposal.momentum.double() * scale, 0.0)
    before, after = before - before.mean(0), after - after.mean(0)
    change = after.square().sum(-1) - before.square().sum(-1)
    return float((weight * change * (after * speed).sum(-1)).sum() / weight.sum())


def halton(index: int) -> float:
    """Number `index` (from one) of Halton's sequence in base two, inside (0, 1)."""
    value, share = 0.0, 0.5
    while index:
        value += share * (index & 1)
        index, share = index >> 1, share / 2
    return value
