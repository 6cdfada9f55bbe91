"""Step sizes found from the data: descent, then a mass and a step that are frozen before the first sample.

All chains share a diagonal mass m and a step h, in coordinates `z = sqrt(m) w` in which the sampler moves.

1. Descent with Adam to a good region, from each chain's own start.
2. A first window samples with one mass for each tensor, the mean curvature of its weights, and collects squared
   gradients. At stationarity E[grad U grad U'] = T E[Hessian of U], so that their means are, up to a factor, the
   curvatures of single weights: the mass.
3. A second window samples with that mass and measures what bounds the step. A power iteration, one more gradient a
   step, follows the largest curvature of U along the chains. With batches, the difference of the gradients of half a
   batch and of all of it measures the covariance V of their noise.
4. The mass and the largest step within both bounds are frozen. Each sampler has its own bounds (`largest_step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.methods.sgmcmc.burn_in import BETWEEN_TESTS, RECORDS, settled
from bayesify.methods.sgmcmc.moves import Moves, step_noise

if TYPE_CHECKING:
    from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC

# Adam in the descent, whose rate falls to zero as a cosine and is smaller for large networks, and for parameters
# without a posterior.
_DESCENT_RATE, _OTHERS_RATE = 0.02, 0.005
_BETAS, _TINY = (0.9, 0.99), 1e-8
# The share of its tensor's mean in the mass of a weight.
_SHRINKAGE = 0.01
# The share of the largest step that is taken in each window, and the root mean square at which gradients are clipped.
_CAUTION, _LONGEST = (0.25, 0.5), 5.0
# A move is too far from this many times the variance that noise explains.
_FARTHEST = 20.0
# Random signs for the first mass.
_PROBES, _SIGNS = 8, 16
# Power iterations when a window begins; later each step makes one.
_ITERATIONS = 10
# The curvature that bounds the step is exceeded at this share of the points that the second window visited.
_EXCEEDED = 0.05
# No direction is flatter than this, where the mass is one: less is an error of the estimate.
_FLATTEST = 1e-3
# Sub-streams of the noise; chains at a given rate use small numbers.
_DIRECTION, _BLOCKS = 5, 6
_STEPS_AT_ONCE, _NORMALS_AT_ONCE = 32, 1 << 18


@dataclass(frozen=True)
class Phases:
    """The steps at which descent, the two windows and the longest burn-in end."""

    descent: int
    trial: int
    adapted: int
    latest: int

    @classmethod
    def of(cls, steps: int, burn_in: float | None = None) -> Phases:
        """Divide a plan of so many steps: short plans spend a larger share on finding the posterior.

        A given share `burn_in` decides when samples begin; the adaptation comes first in any case.
        """
        descent = round(min(max(0.1 * steps, 300), 0.35 * steps, 2000))
        window = max(1, round(min(max(0.05 * steps, 100), 0.1 * steps, 1000)))
        adapted = descent + 2 * window
        latest = adapted + (steps - adapted) // 2 if burn_in is None else max(adapted, round(burn_in * steps))
        return cls(descent, descent + window, adapted, min(latest, steps - 1))


class FoundMoves(Moves):
    """The sampler's step with a mass and a step size that it finds by itself.

    Its state is in tensors of the first parameter, so that a run resumes to the same bits.

    Args:
        method: whose parameters move.
        phases: when descent and adaptation end.

    """

    def __init__(self, method: StochasticGradientMCMC, phases: Phases) -> None:
        # The rate of the plan is relative: what a schedule makes of 1.
        super().__init__(method, 1.0)
        self.phases = phases
        self._block: tuple[int, Tensor] | None = None

    @property
    def found(self) -> dict[str, Any]:
        """The state of the search: mass, step, and what they are made of."""
        found: dict[str, Any] = self.state[self.sampled[0]]
        return found

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters by one step, from their gradients."""
        method, number, found = self.method, self.method.step_number, self.found
        if "phases" in found:
            # A run that is extended keeps what it has adapted.
            self.phases = replace(
                self.phases, **dict(zip(("descent", "trial", "adapted"), found["phases"].tolist(), strict=True))
            )
        else:
            found["phases"] = torch.tensor((self.phases.descent, self.phases.trial, self.phases.adapted))
        phases, factor = self.phases, self.param_groups[0]["lr"]
        gradient = method.n_data * method.joined([p.grad for p in self.sampled])
        for group in self.param_groups[1:]:
            for parameter in group["params"]:
                self._adam(self.state[parameter], parameter, parameter.grad, _OTHERS_RATE)
        if number < phases.descent:
            self._descend(gradient, number)
            return
        if number == phases.descent:
            self._begin_window(gradient, by_tensor=True)
        elif number == phases.trial:
            self._begin_window(gradient, by_tensor=False)
        if number < phases.adapted:
            self._measure(gradient, number)
        elif number == phases.adapted:
            self._freeze()
        else:
            self._watch(number)
        calendar = method.calendar
        assert calendar is not None
        step = float(found["step"]) * factor * calendar.factor(number)
        self._move(gradient, step, 0.0 if calendar.explores(number) else method.heat)
        self.param_groups[0]["lr"] = method.n_data * step / float(found["root"].square().median())

    def _descend(self, gradient: Tensor, number: int) -> None:
        rate = (
            min(_DESCENT_RATE, 2 / math.sqrt(gradient.shape[1]))
            * 0.5
            * (1 + math.cos(math.pi * number / self.phases.descent))
        )
        joined = self.method.joined(self.sampled)
        self._adam(self.found, joined, gradient, rate)
        self._write(joined)

    def _adam(self, state: dict[str, Any], x: Tensor, gradient: Tensor | None, rate: float) -> None:
        if gradient is None:
            return
        if "first" not in state:
            state["first"], state["second"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
            state["count"] = torch.zeros((), dtype=torch.int64)
        state["count"] += 1
        count = int(state["count"])
        state["first"].lerp_(gradient, 1 - _BETAS[0])
        state["second"].lerp_(gradient.square(), 1 - _BETAS[1])
        mean, square = (state[name] / (1 - beta**count) for name, beta in zip(("first", "second"), _BETAS, strict=True))
        x.sub_(rate * mean / (square.sqrt() + _TINY))

    def _collect(self, gradient: Tensor) -> None:
        found = self.found
        square = gradient.square().mean(0)
        found["squares"] = found["squares"] + square if "squares" in found else square
        found["collected"] = found.get("collected", torch.zeros((), dtype=torch.int64)) + 1

    def _begin_window(self, gradient: Tensor, *, by_tensor: bool) -> None:
        found, method = self.found, self.method
        for name in ("first", "second", "count"):
            found.pop(name, None)
        if by_tensor:
            mass = method.means_by_tensor(self._diagonal(gradient)).abs()
        else:
            squares = found.pop("squares") / int(found.pop("collected"))
            mass = _SHRINKAGE * method.means_by_tensor(squares) + (1 - _SHRINKAGE) * squares
        before = found.get("root")
        found["root"] = root = (mass + 1e-12 * mass.max() + _TINY).sqrt()
        if before is None:
            direction = step_noise(method, gradient, gradient.shape[1], _DIRECTION)
        else:
            direction = found["direction"] / before * root
        found["direction"] = direction / direction.norm(dim=1, keepdim=True)
        found["curvature"] = gradient.new_tensor(1.0)
        found["step"] = gradient.new_tensor(1e-4)
        for _ in range(_ITERATIONS):
            self._follow_curvature(gradient, gain=1.0)
        found["curvatures"] = gradient.new_zeros(0, method.chains)
        found["noises"] = gradient.new_zeros(0, 2)

    def _measure(self, gradient: Tensor, number: int) -> None:
        """One power iteration, one measurement of the batches' noise, and a step within their bounds so far."""
        found = self.found
        self._collect(gradient)
        now = self._follow_curvature(gradient, gain=0.1)
        found["curvatures"] = torch.cat((found["curvatures"], now.unsqueeze(0)))
        from_batches = self.method.batch_noise()
        if from_batches is not None:
            whitened = self.method.n_data * from_batches / found["root"]
            along = (whitened * found["direction"]).sum(1)
            row = torch.stack((whitened.square().mean(), along.square().mean()))
            found["noises"] = torch.cat((found["noises"], row.unsqueeze(0)))
        caution = _CAUTION[number >= self.phases.trial]
        found["step"] = gradient.new_tensor(caution * self._largest_step(float(found["curvature"])))

    def _diagonal(self, gradient: Tensor) -> Tensor:
        """The diagonal of the Hessian, a mean over the chains, by random signs z: E[z * H z] (Hutchinson 1990)."""
        method, total = self.method, torch.zeros_like(gradient[0])
        for probe in range(_PROBES):
            signs = step_noise(method, gradient, gradient.shape[1], _SIGNS + probe).sign()
            length = 1e-2 * float(method.joined(self.sampled).square().mean().sqrt()) + 1e-4
            moved = method.n_data * method.gradient_at(length * signs)
            total += (signs * (moved - gradient) / length).mean(0) / _PROBES
        return total

    def _follow_curvature(self, gradient: Tensor, gain: float) -> Tensor:
        """A power iteration of each chain; the curvature along each direction, `[chains]`."""
        found, method = self.found, self.method
        direction, root = found["direction"], found["root"]
        # As far as a step of the sampler moves, so that kinks of the network count as it meets them.
        length = float(found["step"]) ** 0.5
        moved = method.n_data * method.gradient_at(length * direction / root)
        product = (moved - gradient) / (root * length)
        now: Tensor = (direction * product).sum(1)
        scale = max(float(found["curvature"]), _TINY) if gain < 1 else product.norm(dim=1, keepdim=True) + _TINY
        direction = direction + product / scale
        found["direction"] = direction / direction.norm(dim=1, keepdim=True)
        largest = now.max() if gain < 1 else product.norm(dim=1).max()
        # A step that is too long is worse than one that is too short.
        found["curvature"] = torch.maximum(largest, torch.lerp(found["curvature"], largest, gain))
        return now

    def _largest_step(self, curvature: float) -> float:
        noises = self.found["noises"]
        everywhere, along = noises.mean(0).tolist() if len(noises) else (0.0, 0.0)
        return self.method.largest_step(max(curvature, _FLATTEST), max(everywhere, along / 2))

    def _freeze(self) -> None:
        found = self.found
        values = found["curvatures"].flatten().double()
        curvature = float(torch.quantile(values.clamp(min=0), 1 - _EXCEEDED))
        found["step"] = found["root"].new_tensor(self._largest_step(curvature))
        for name in ("squares", "collected", "direction", "curvature", "curvatures", "noises"):
            found.pop(name, None)

    def _watch(self, number: int) -> None:
        """Record the log joint until it has settled; samples begin then, or at the latest step that may end burn-in."""
        found, method, calendar = self.found, self.method, self.method.calendar
        assert calendar is not None
        if "settled" in found:
            if calendar.begin != int(found["settled"]) + 1:
                method.burnt_in(int(found["settled"]))  # a resumed run
            return
        if method.burn_in is not None or method.cycles or number >= self.phases.latest:
            return
        since = number - self.phases.adapted
        every = max(1, (calendar.steps - self.phases.adapted) // RECORDS)
        if since % every:
            return
        record = found.get("record", torch.zeros(0, dtype=torch.float64))
        found["record"] = record = torch.cat((record, torch.tensor([method.log_joint()], dtype=torch.float64)))
        if len(record) % BETWEEN_TESTS == 0 and settled(record):
            found["settled"] = torch.tensor(number)
            found.pop("record")
            method.burnt_in(number)

    def _move(self, gradient: Tensor, step: float, heat: float) -> None:
        method, root = self.method, self.found["root"]
        joined = method.joined(self.sampled)
        eps = method.without_fixed(self._noise(joined)) if heat else torch.zeros_like(joined)
        whitened = gradient / root
        if method.step_number < self.phases.adapted:
            # The first mass is rough: no gradient may throw a chain far away.
            most = _LONGEST * math.sqrt(joined.shape[1])
            whitened = whitened * (most / whitened.norm(dim=1, keepdim=True).clamp(min=most))
        moved = torch.zeros_like(joined)
        method.move(moved, whitened, eps, method.n_data * step, heat, self.found)
        if heat:
            self._hold(moved, step * heat)
        self._write(joined + moved / root)

    def _hold(self, moved: Tensor, variance: float) -> None:
        """Keep chains where they are that would move much farther than noise explains, and take shorter steps.

        A step that is too long for the curvature somewhere grows from step to step: this ends it at once.
        """
        found = self.found
        limit = variance * (_FARTHEST + 3 * _FARTHEST / moved.shape[1])
        wild = ~(moved.square().mean(1) < limit)
        if not bool(wild.any()):
            return
        moved[wild] = 0.0
        if "velocity" in found:
            found["velocity"][wild] = 0.0
        if self.method.step_number >= self.phases.adapted:
            found["step"] = found["step"] / 2

    def _noise(self, like: Tensor) -> Tensor:
        """The normals of a step; those of several steps are made at once, as a function of the steps' numbers."""
        method, (chains, size) = self.method, like.shape
        together = max(1, min(_STEPS_AT_ONCE, _NORMALS_AT_ONCE // like.numel()))
        block, place = divmod(method.step_number, together)
        if self._block is None or self._block[0] != block:
            keys = noise.keys(method.seed, noise.Stream.SGMCMC, step=block, draws=(_BLOCKS,), device=like.device)
            normals = noise.normal(keys, together * like.numel()).to(like.dtype)
            self._block = block, normals.view(together, chains, size)
        return self._block[1][place]

    def _write(self, joined: Tensor) -> None:
        for parameter, part in zip(self.sampled, self.method.parted(joined), strict=True):
            parameter.copy_(part)
