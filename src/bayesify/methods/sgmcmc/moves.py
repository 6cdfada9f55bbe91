"""The update of chains at a given learning rate, as a torch optimiser, and the noise of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.errors import positive
from bayesify.training.engines.updates import UpdateRule
from bayesify.training.light_optimizers import LightOptimizer

if TYPE_CHECKING:
    from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC


class Moves(LightOptimizer):
    """The sampler's step for parameters with a posterior, plain gradient descent for the others.

    Args:
        method: whose parameters move.
        learning_rate: of the mean loss over a batch.

    """

    def __init__(self, method: StochasticGradientMCMC, learning_rate: float) -> None:
        self.sampled = method.sampled_parameters()
        others = [p for p in method.parameters() if all(p is not sampled for sampled in self.sampled)]
        groups = [{"params": self.sampled}, *([{"params": others}] if others else [])]
        super().__init__(groups, {"lr": positive("learning_rate", learning_rate)})
        self.method = method

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters by one step, from their gradients."""
        method = self.method
        calendar = method.calendar
        assert calendar is not None
        for group in self.param_groups:
            group["lr"] *= calendar.factor(method.step_number)
        rate = self.param_groups[0]["lr"]
        heat = 0.0 if calendar.explores(method.step_number) else method.heat
        for place, parameter in enumerate(self.sampled):
            assert parameter.grad is not None
            rows = parameter if parameter.dim() > 1 else parameter.unsqueeze(1)
            gradient = parameter.grad if parameter.dim() > 1 else parameter.grad.unsqueeze(1)
            random = method.network.random_size if place == 0 else rows.shape[1]
            eps = step_noise(method, rows, random, place) if heat else torch.zeros_like(rows)
            method.move(rows, method.n_data * gradient, eps, rate, heat, self.state[parameter])
        for group in self.param_groups[1:]:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    # All chains share these, and the loss is the sum over the chains.
                    parameter.sub_(group["lr"] / method.chains * parameter.grad)
        self.state[self.sampled[0]]["steps"] = method.step_number + 1

    def update_rule(self) -> MovesRule:
        """The update as tensor expressions that can be compiled."""
        return MovesRule(self)


class MovesRule(UpdateRule):
    """The sampler's step as a part of the fused step.

    Args:
        optimizer: the moves of a method.

    """

    optimizer: Moves

    def __init__(self, optimizer: Moves) -> None:
        self.optimizer, self.method = optimizer, optimizer.method
        # In the order of the method, which is that of the fused step.
        self.parameters = list(self.method.parameters())
        self.places = [
            next((place for place, sampled in enumerate(optimizer.sampled) if sampled is parameter), None)
            for parameter in self.parameters
        ]
        self.state = [self._own_state(parameter) for parameter in self.parameters]
        self._step: Tensor | int = 0
        self._seed: Tensor | int = 0

    def begin(self, step: Tensor, seed: Tensor) -> None:
        self._step, self._seed = step, seed

    def numbers(self, rate: float, done: int) -> tuple[float, ...]:
        return (*self.method.coefficients(rate, self.method.heat), rate / self.method.chains)

    def apply_all(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        state: Sequence[Sequence[Tensor]],
        numbers: Sequence[Tensor],
    ) -> None:
        *coefficients, rate = numbers
        for parameter, gradient, slots, place in zip(parameters, gradients, state, self.places, strict=True):
            if place is None:
                if gradient is not None:
                    parameter.sub_(rate * gradient)
                continue
            rows = parameter if parameter.dim() > 1 else parameter.unsqueeze(1)
            slope = torch.zeros_like(rows) if gradient is None else gradient.reshape(rows.shape)
            self.method.move_captured(rows, slope, self._noise(rows, place), slots, coefficients)

    def apply(self, parameter: Tensor, gradient: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]) -> None:
        raise TypeError("chains move all their parameters together: use apply_all")

    def count(self) -> int:
        return int(self.optimizer.state[self.optimizer.sampled[0]].get("steps", 0))

    def record(self, done: int) -> None:
        self.optimizer.state[self.optimizer.sampled[0]]["steps"] = done

    def _own_state(self, parameter: Tensor) -> list[Tensor]:
        if all(parameter is not sampled for sampled in self.optimizer.sampled):
            return []
        rows = parameter.detach() if parameter.dim() > 1 else parameter.detach().unsqueeze(1)
        return self.method.first_state(rows, self.optimizer.state[parameter])

    def _noise(self, rows: Tensor, place: int) -> Tensor:
        chains = range(self.method.chains)
        keys = torch.cat([noise.keys(self._seed, noise.Stream.SGMCMC, chain, self._step, (place,)) for chain in chains])
        random = self.method.network.random_size if place == 0 else rows.shape[1]
        eps = noise.normal(keys, random).to(rows.dtype)
        if random == rows.shape[1]:
            return eps
        return torch.cat((eps, rows.new_zeros(rows.shape[0], rows.shape[1] - random)), 1)


def step_noise(method: StochasticGradientMCMC, like: Tensor, random: int, place: int) -> Tensor:
    """Standard normals for the first `random` columns of a tensor `[chains, size]`, zeros for the others."""
    keys = torch.cat(
        [
            noise.keys(method.seed, noise.Stream.SGMCMC, chain, method.step_number, (place,), like.device)
            for chain in range(method.chains)
        ]
    )
    eps = torch.zeros_like(like)
    # Of weights in parts each process has the noise of its own.
    normals = noise.normal(keys, random) if place or method.shard is None else method.shard.normal(keys)
    eps[:, : normals.shape[1]] = normals.to(eps.dtype)
    return eps
