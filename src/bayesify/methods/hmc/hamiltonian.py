"""Hamiltonian dynamics of many chains at once, by leapfrogs (R. Neal, MCMC using Hamiltonian dynamics, 2011).

A chain at position q with momentum p ~ N(0, M) has the energy H = -log pi(q) + p' M^-1 p / 2. One leapfrog step is

    p <- p + eps/2 grad log pi(q),    q <- q + eps M^-1 p,    p <- p + eps/2 grad log pi(q),

reversible and volume-preserving, so that accepting its end with probability min(1, exp(H_before - H_after)) leaves pi
as it is. The two half kicks between neighbouring steps are one kick here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from bayesify.errors import first_line

logger = logging.getLogger("bayesify")

# A change of energy that no step of a stable integrator makes (Stan's convention).
DIVERGES_FROM = 1000.0


class Target(Protocol):
    """A log density over vectors, for all chains at once."""

    size: int

    def value(self, position: Tensor) -> Tensor:
        """`[chains, size]` -> `[chains]`, float64: its differences decide about acceptance."""
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
    """The ends of trajectories, the momenta there, and what the way cost in energy (`[chains]`)."""

    end: State
    momentum: Tensor
    energy: Tensor
    energy_change: Tensor

    @property
    def acceptance(self) -> Tensor:
        """The probability of accepting each end; nought where the energy is no number."""
        return torch.exp(-self.energy_change).clamp(max=1.0).nan_to_num(0.0)

    @property
    def diverging(self) -> Tensor:
        """Where the integrator lost its hold on the energy."""
        return ~(self.energy_change < DIVERGES_FROM)


def look(target: Target, position: Tensor) -> State:
    """The state of chains at these positions."""
    return State(position, target.value(position), target.gradient(position))


def kinetic_energy(momentum: Tensor, inverse_mass: Tensor) -> Tensor:
    """`p' M^-1 p / 2`, `[chains]`, in float64: with many weights float32 has no digits left for differences."""
    return 0.5 * (momentum.double().square() * inverse_mass.double()).sum(-1)


class Leapfrog:
    """Steps of all chains together: plainly, compiled on a CPU, or recorded as a CUDA graph.

    Args:
        target: what is followed.
        position: an example of positions, `[chains, size]`.
        fast: compile or record one step; where that is not possible, the plain step is used and `path` says so.
        workers: groups of chains that go their ways in threads of their own; it must divide the number of chains, and
            the target must not know the chains apart.

    """

    def __init__(self, target: Target, position: Tensor, *, fast: bool = False, workers: int = 1) -> None:
        self.target = target
        self.path = "plain"
        # Whole trajectories side by side: cores that share every single operation would mostly wait for each other.
        self._workers = 1 if position.is_cuda else workers
        # A thread takes over torch's number of threads when it first asks for it; compiled code never does, and its
        # matrix products would each start threads of their own.
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
        if self._pool is None:
            return self._follow(start.position, momentum, start.gradient, inverse_mass, step_size, steps)
        parts = [held.chunk(self._workers) for held in (start.position, momentum, start.gradient)]

        def one(group: int) -> tuple[Tensor, Tensor, Tensor]:
            position, momentum, gradient = (part[group] for part in parts)
            with torch.no_grad():
                return self._follow(position, momentum, gradient, inverse_mass, step_size, steps)

        ways = self._pool.map(one, range(self._workers))
        position, momentum, gradient = (torch.cat(ends) for ends in zip(*ways, strict=True))
        return position, momentum, gradient

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
                position, momentum, gradient = self._step(position, momentum, drift, kick)
        else:
            position = position.clone()
            for _ in range(steps):
                position.addcmul_(drift, momentum)
                gradient = self.target.gradient(position)
                momentum.add_(gradient, alpha=step_size)
        return position, momentum - 0.5 * step_size * gradient, gradient

    def propose(self, start: State, momentum: Tensor, inverse_mass: Tensor, step_size: float, steps: int) -> Proposal:
        """The ends of trajectories of this many steps."""
        before = kinetic_energy(momentum, inverse_mass) - start.log_density
        position, momentum, gradient = self.follow(start, momentum, inverse_mass, step_size, steps)
        end = State(position, self.target.value(position), gradient)
        after = kinetic_energy(momentum, inverse_mass) - end.log_density
        return Proposal(end, momentum, before, after - before)


def choose_end(start: State, proposal: Proposal, uniform: Tensor) -> tuple[State, Tensor]:
    """The end where `uniform [chains]` falls below the acceptance, the start elsewhere; and where it was the end."""
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

    # Plainly first: what a network finds out about itself in its first pass cannot be found out while it is traced.
    expected = step(*example)[2]
    # One call into C++ for the whole step: no Python between its kernels, and workers need not wait for each other's.
    # Its graphs cannot be cached, and trying to would be told to the user.
    with compiler_config.patch(cpp_wrapper=True), autograd_config.patch(enable_autograd_cache=False):
        compiled = compile_function(traced, example)
    found = compiled(*example)[2]
    scale = expected.abs().amax().clamp(min=1.0)
    if not torch.allclose(expected / scale, found / scale, atol=1e-4, equal_nan=True):
        raise RuntimeError("the compiled gradient differs from the plain one")
    return compiled


class _Graph:
    """One leapfrog step recorded on a GPU: the launches of its kernels would take longer than their work."""

    def __init__(self, step: Callable[..., Any], position: Tensor) -> None:
        self.position, self.momentum = position.detach().clone(), torch.zeros_like(position)
        self.drift, self.kick = torch.zeros_like(position[0]), position.new_zeros(())
        self.gradient = torch.zeros_like(position)

        def move() -> None:
            found = step(self.position, self.momentum, self.drift, self.kick)
            for held, new in zip((self.position, self.momentum, self.gradient), found, strict=True):
                held.copy_(new)

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
