"""The update of chains at a given learning rate, as a torch optimiser, and the noise of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesify import noise
from bayesify.errors import positive

if TYPE_CHECKING:
    from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC


class Moves(Optimizer):
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


def step_noise(method: StochasticGradientMCMC, like: Tensor, random: int, place: int) -> Tensor:
    """Standard normals for the first `random` columns of a tensor `[chains, size]`, zeros for the others."""
    keys = torch.cat(
        [
            noise.keys(method.seed, noise.Stream.SGMCMC, chain, method.step_number, (place,), like.device)
            for chain in range(method.chains)
        ]
    )
    eps = torch.zeros_like(like)
    eps[:, :random] = noise.normal(keys, random).to(eps.dtype)
    return eps
