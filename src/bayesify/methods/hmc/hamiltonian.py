"""Hamiltonian dynamics of many chains at once, by leapfrogs (R. Neal, MCMC using Hamiltonian dynamics, 2011).

A chain at position q with momentum p ~ N(0, M) has the energy H = -log pi(q) + p' M^-1 p / 2. One leapfrog step is

    p <- p + eps/2 grad log pi(q),    q <- q + eps M^-1 p,    p <- p + eps/2 grad log pi(q),

reversible and volume-preserving, so that accepting its end with probability min(1, exp(H_before - H_after)) leaves pi
invariant. The two half kicks between neighbouring steps are one kick here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from bayesify.distributed import Group, active
from bayesify.errors import first_line

logger = logging.getLogger("bayesify")

# A larger change of energy is a divergence (Stan's convention).
DIVERGES_FROM = 1000.0


class Target(Protocol):
    """A log density over vectors, for all chains at once."""

    size: int

    def value(self, position: Tensor) -> Tensor:
        """`[chains, size]` -> `[chains]`, in float64: acceptance depends on small differences."""
        ...

    def gradient(self, position: Tensor) -> Tensor:
        """`[chains, size]` -> `[chains, size]`."""
        ...


@dataclass
class State:
    """Where the chains are: positions `[chains, size]`, and their log density and its gradient there."""

    position: Tensor
    log_density: Tensor
    gradient: Tensor


@dataclass
class Proposal:
    """The ends of trajectories, the momenta there, and the change of energy on the way (`[chains]`)."""

    end: State
    momentum: Tensor
    energy: Tensor
    energy_change: Tensor

    @property
    def acceptance(self) -> Tensor:
        """The probability of accepting each end; zero where the energy is not a number."""
        return torch.exp(-self.energy_change).clamp(max=1.0).nan_to_num(0.0)

    @property
    def diverging(self) -> Tensor:
        """Where the integrator did not conserve the energy."""
        return ~(self.energy_change < DIVERGES_FROM)


def state_at(target: Target, position: Tensor) -> State:
    """The state of chains at these positions."""
    return State(position, target.value(position), target.gradient(position))


def kinetic_energy(momentum: Tensor, inverse_mass: Tensor) -> Tensor:
    """`p' M^-1 p / 2`, `[chains]`, in float64: with many weights float32 has no digits left for differences."""
    return 0.5 * (momentum.double().square() * inverse_mass.double()).sum(-1)


class TrajectoryStoppedError(Exception):
    """A trajectory was given up half way; the chains are where it started."""


class Leapfrog:
    """Steps of all chains together: plainly, compiled on a CPU, or recorded as a CUDA graph.

    Args:
        target: what is followed.
        position: an example of positions, `[chains, size]`.
        fast: compile or record one step; where that is not possible, the plain step is used and `path` says so.
        workers: the number of threads, each with a group of chains. It must divide the number of chains, and the
            target must treat all chains alike.

    Attributes:
        stopped: whether to give a trajectory up; asked before every step, except in a recorded graph.

    """

    def __init__(self, target: Target, position: Tensor, *, fast: bool = False, workers: int = 1) -> None:
        self.target = target
        self.path = "plain"
        self.stopped: Callable[[], bool] = lambda: False
        # Threads follow whole trajectories: sharing each operation would make them wait for each other.
        self._workers = 1 if position.is_cuda else workers
        # A thread adopts torch's number of threads when it first reads it. Compiled code never reads it, and each of
        # its matrix products would start more threads.
        self._pool = ThreadPoolExecutor(self._workers, initializer=torch.get_num_threads) if self._workers > 1 else None
        self._step: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, ...]] | None = None
        self._graph: _Graph | None = None
        if not fast:
            return
        try:
            if position.is_cuda:
                self._graph, self.path = _Graph(self.step, position), "graph"
            else:
                self._step, self.path = _compile(self.step, position[: len(position) // self._workers]), "compiled"
        except Exception as problem:  # noqa: BLE001 -- no compiler, a network that cannot be traced: the plain step works
            logger.warning("not compiled (%s): the plain step is used", first_line(problem))

    def step(self, position: Tensor, momentum: Tensor, drift: Tensor, kick: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A drift by `eps M^-1` and a whole kick by eps: position, momentum and the gradient there."""
        position = position + drift * momentum
        gradient = self.target.gradient(position)
        return position, momentum + kick * gradient, gradient

    def follow(
        self, start: State, momentum: Tensor, inverse_mass: Tensor, step_size: float, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Position, momentum and gradient after this many steps."""
        group = active()
        if group is not None:
            return self._follow_together(group, start, momentum, inverse_mass, step_size, steps)
        if self._pool is None:
            return self._follow(start.position, momentum, start.gradient, inverse_mass, step_size, steps)
        groups = [tensor.chunk(self._workers) for tensor in (start.position, momentum, start.gradient)]

        def follow_group(number: int) -> tuple[Tensor, Tensor, Tensor]:
            position, momentum, gradient = (group[number] for group in groups)
            with torch.no_grad():
                return self._follow(position, momentum, gradient, inverse_mass, step_size, steps)

        trajectories = self._pool.map(follow_group, range(self._workers))
        position, momentum, gradient = (torch.cat(ends) for ends in zip(*trajectories, strict=True))
        return position, momentum, gradient

    def _follow_together(
        self, group: Group, start: State, momentum: Tensor, inverse_mass: Tensor, step_size: float, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Each process follows some of the chains; all of them get all ends."""
        chains = len(start.position)
        first, size = group.slice(chains)
        own = slice(min(first, chains - 1), min(first, chains - 1) + max(size, 1))
        ends = self._follow(start.position[own], momentum[own], start.gradient[own], inverse_mass, step_size, steps)
        whole = group.rows(torch.cat(ends, 1)[:size], chains, axis=0).split([end.shape[1] for end in ends], 1)
        return whole[0].contiguous(), whole[1].contiguous(), whole[2].contiguous()

    def _follow(
        self,
        position: Tensor,
        momentum: Tensor,
        gradient: Tensor,
        inverse_mass: Tensor,
        step_size: float,
        steps: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        drift = step_size * inverse_mass
        momentum = momentum + 0.5 * step_size * gradient
        if self._graph is not None:
            position, momentum, gradient = self._graph.replay(position, momentum, drift, step_size, steps)
        elif self._step is not None:
            kick = torch.full((), step_size, dtype=position.dtype, device=position.device)
            for _ in range(steps):
                self._check()
                position, momentum, gradient = self._step(position, momentum, drift, kick)
        else:
            position = position.clone()
            for _ in range(steps):
                self._check()
                position.addcmul_(drift, momentum)
                gradient = self.target.gradient(position)
                momentum.add_(gradient, alpha=step_size)
        return position, momentum - 0.5 * step_size * gradient, gradient

    def _check(self) -> None:
        if self.stopped():
            raise TrajectoryStoppedError

    def propose(self, start: State, momentum: Tensor, inverse_mass: Tensor, step_size: float, steps: int) -> Proposal:
        """The ends of trajectories of this many steps."""
        before = kinetic_energy(momentum, inverse_mass) - start.log_density
        position, momentum, gradient = self.follow(start, momentum, inverse_mass, step_size, steps)
        end = State(position, self.target.value(position), gradient)
        after = kinetic_energy(momentum, inverse_mass) - end.log_density
        return Proposal(end, momentum, before, after - before)


def choose_end(start: State, proposal: Proposal, uniform: Tensor) -> tuple[State, Tensor]:
    """Accept the end where `uniform [chains]` is below the acceptance: the new state, and where it was accepted."""
    accepted = uniform < proposal.acceptance
    row, end = accepted.unsqueeze(-1), proposal.end
    return (
        State(
            torch.where(row, end.position, start.position),
            torch.where(accepted, end.log_density, start.log_density),
            torch.where(row, end.gradient, start.gradient),
        ),
        accepted,
    )


def _compile(step: Callable[..., Any], position: Tensor) -> Callable[..., Any]:
    from torch._functorch import config as autograd_config
    from torch._inductor import config as compiler_config

    from bayesify.training.engines.compiling import compile_function

    drift, kick = torch.zeros_like(position[0]), position.new_zeros(())
    example = (position.detach().clone(), torch.zeros_like(position), drift, kick)

    def traced(position: Tensor, momentum: Tensor, drift: Tensor, kick: Tensor) -> Any:
        return step(position, momentum, drift, kick)

    # A plain pass first: a network records facts in its first pass that it cannot record while it is traced.
    expected = step(*example)[2]
    # One call into C++ for the whole step: without Python between kernels, threads do not wait for each other. Such
    # graphs cannot be cached, and trying to would print a warning.
    with compiler_config.patch(cpp_wrapper=True), autograd_config.patch(enable_autograd_cache=False):
        compiled = compile_function(traced, example)
    gradient = compiled(*example)[2]
    scale = expected.abs().amax().clamp(min=1.0)
    if not torch.allclose(expected / scale, gradient / scale, atol=1e-4, equal_nan=True):
        raise RuntimeError("the compiled gradient differs from the plain one")
    return compiled


class _Graph:
    """One leapfrog step as a CUDA graph: launching its kernels one by one would take longer than running them."""

    def __init__(self, step: Callable[..., Any], position: Tensor) -> None:
        self.position, self.momentum = position.detach().clone(), torch.zeros_like(position)
        self.drift, self.kick = torch.zeros_like(position[0]), position.new_zeros(())
        self.gradient = torch.zeros_like(position)

        def move() -> None:
            moved = step(self.position, self.momentum, self.drift, self.kick)
            for buffer, value in zip((self.position, self.momentum, self.gradient), moved, strict=True):
                buffer.copy_(value)

        stream = torch.cuda.Stream(position.device)
        stream.wait_stream(torch.cuda.current_stream(position.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                move()
        torch.cuda.current_stream(position.device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            move()

    def replay(
        self, position: Tensor, momentum: Tensor, drift: Tensor, step_size: float, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        self.position.copy_(position)
        self.momentum.copy_(momentum)
        self.drift.copy_(drift)
        self.kick.fill_(step_size)
        for _ in range(steps):
            self.graph.replay()
        return self.position.clone(), self.momentum.clone(), self.gradient.clone()
