"""Hamiltonian Monte Carlo, one iteration of all chains at a time: momenta, trajectories, acceptance, adaptation.

Every number is a function of (seed, chain, iteration) and the positions, so that a run can stop between any two
iterations and continue to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesify import noise
from bayesify.methods.hmc.adaptation import Adaptation, DualAveraging, TrajectoryLength
from bayesify.methods.hmc.hamiltonian import Leapfrog, Target, choose_end, state_at

# Uniforms are elements far from the momenta's (the priors' draws use the same distance).
_UNIFORM = 1 << 30
_SEARCH = 1 << 31


@dataclass
class Iteration:
    """What an iteration did: acceptance, divergence and energy of each chain `[chains]`, and its trajectories."""

    acceptance: Tensor
    diverging: Tensor
    energy: Tensor
    steps: int
    step_size: float


class Sampler:
    """Chains that follow a target.

    Args:
        target: the log density.
        position: where the chains start, `[chains, size]`; over-dispersed, for their agreement to mean something.
        variance: of each coordinate under the prior `[size]`, the first guess of the inverse mass.
        shrinks: shrink the measured variances towards that guess.
        warm_up: iterations that adapt.
        seed: of the momenta and the acceptance.
        target_accept: the mean acceptance that the step size is adapted to.
        longest: the largest number of leapfrog steps in a trajectory.
        fast: compile a step (or record it, on a GPU).
        workers: the number of threads, each with a group of chains; see `Leapfrog`.

    """

    def __init__(
        self,
        target: Target,
        position: Tensor,
        *,
        variance: Tensor | None = None,
        shrinks: bool = True,
        warm_up: int = 500,
        seed: int = 0,
        target_accept: float = 0.8,
        longest: int = 1000,
        fast: bool = False,
        workers: int = 1,
    ) -> None:
        self.target, self.seed = target, seed
        self.leapfrog = Leapfrog(target, position, fast=fast, workers=workers)
        self.state = state_at(target, position.detach().clone())
        variance = torch.ones_like(position[0]) if variance is None else variance.to(position)
        step = DualAveraging.start(1.0, target_accept, ambition=10.0)
        towards = variance if shrinks else None
        self.adaptation = Adaptation(warm_up, step, TrajectoryLength(), variance, towards, longest)

    def find_step_size(self) -> float:
        """A first step size: double or halve until the acceptance of a single step crosses one half."""
        adaptation = self.adaptation
        step_size: float = self.state.position.shape[1] ** -0.25
        up: bool | None = None
        for attempt in range(60):
            momentum, _ = self._noise(_SEARCH + attempt)
            proposal = self.leapfrog.propose(self.state, momentum, adaptation.inverse_mass, step_size, 1)
            enough = float(proposal.acceptance.mean()) > 0.5
            up = enough if up is None else up
            if enough != up:
                break
            step_size *= 2.0 if up else 0.5
        adaptation.step = DualAveraging.start(step_size, adaptation.step.target, ambition=10.0)
        return step_size

    def iterate(self, iteration: int) -> Iteration:
        """One iteration of every chain; in warm-up it also adapts."""
        adaptation, start = self.adaptation, self.state
        momentum, uniform = self._noise(iteration)
        step_size, steps = adaptation.step_size(iteration), adaptation.steps(iteration)
        proposal = self.leapfrog.propose(start, momentum, adaptation.inverse_mass, step_size, steps)
        self.state, accepted = choose_end(start, proposal, uniform)
        if iteration < adaptation.warm_up:
            adaptation.learn(iteration, start, proposal, self.state, steps)
        energy = proposal.energy + torch.where(accepted, proposal.energy_change, 0.0)
        return Iteration(proposal.acceptance, proposal.diverging, energy, steps, step_size)

    def _noise(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Momenta `[chains, size]` with the mass as their variance, and uniforms `[chains]`."""
        position = self.state.position
        keys = noise.fold(self._keys(), iteration)
        momentum = noise.normal(keys, position.shape[1]).to(position.dtype) * self.adaptation.inverse_mass.rsqrt()
        return momentum, noise.uniform(keys, 1, _UNIFORM).squeeze(-1)

    def _keys(self) -> Tensor:
        position = self.state.position
        if not hasattr(self, "_chain_keys"):
            self._chain_keys = noise.keys(
                self.seed, noise.Stream.HMC, draws=range(position.shape[0]), device=position.device
            )
        return self._chain_keys
