"""Updates of torch's optimisers as expressions that can be compiled together with the gradients.

    SGD     b <- momentum * b + g;  p <- p - rate * b
    Adam    m <- m + (1 - beta1)(g - m);  v <- beta2 v + (1 - beta2) g^2
            p <- p - rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)        (Kingma and Ba 2015)
    AdamW   the same after p <- (1 - rate * decay) p                                   (Loshchilov and Hutter 2019)

The state stays in torch's optimiser, so checkpoints are the same on both paths. What changes from step to step is read
from a small tensor of numbers and never compiled in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from bayesify.training import light_optimizers


class UpdateRule(ABC):
    """The update of one parameter group; `state` has one sequence of tensors for each parameter."""

    def __init__(self, optimizer: Optimizer) -> None:
        (self.group,) = optimizer.param_groups
        self.optimizer = optimizer
        self.parameters: list[Tensor] = list(self.group["params"])
        self.state = [self._own_state(parameter) for parameter in self.parameters]

    def begin(self, step: Tensor, seed: Tensor) -> None:  # noqa: B027 -- most updates have no noise
        """What an update with noise needs: the number of the step and the seed, as tensors of a trace."""

    @abstractmethod
    def numbers(self, rate: float, done: int) -> tuple[float, ...]:
        """The numbers that an update depends on, after `done` updates, at a learning rate `rate`."""

    def apply_all(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        state: Sequence[Sequence[Tensor]],
        numbers: Sequence[Tensor],
    ) -> None:
        """Change every parameter that has a gradient, and its state, in place."""
        for parameter, gradient, slots in zip(parameters, gradients, state, strict=True):
            if gradient is not None:
                self.apply(parameter, gradient, slots, numbers)

    @abstractmethod
    def apply(self, parameter: Tensor, gradient: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]) -> None:
        """Change the parameter and its state in place."""

    @abstractmethod
    def count(self) -> int:
        """How many updates the optimiser has made."""

    @abstractmethod
    def record(self, done: int) -> None:
        """Write the number of updates into the optimiser's state."""

    @abstractmethod
    def _own_state(self, parameter: Tensor) -> list[Tensor]: ...


class SGDRule(UpdateRule):
    """Gradient descent, with momentum where asked for."""

    def numbers(self, rate: float, done: int) -> tuple[float, ...]:
        return (rate,)

    def apply(self, parameter: Tensor, gradient: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]) -> None:
        (rate,) = numbers
        momentum, decay = self.group["momentum"], self.group["weight_decay"]
        if decay:
            gradient = gradient + decay * parameter
        if momentum:
            (velocity,) = state
            velocity.copy_(momentum * velocity + gradient)
            gradient = gradient + momentum * velocity if self.group["nesterov"] else velocity
        parameter.sub_(rate * gradient)

    def count(self) -> int:
        return 0  # the same at every step

    def record(self, done: int) -> None:
        pass

    def _own_state(self, parameter: Tensor) -> list[Tensor]:
        if not self.group["momentum"]:
            return []
        state: dict[str, Any] = self.optimizer.state[parameter]
        # Torch starts from the first gradient, which equals one step of momentum from zero.
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return [state["momentum_buffer"]]


class AdamRule(UpdateRule):
    """Adam, or AdamW where the decay is decoupled."""

    def numbers(self, rate: float, done: int) -> tuple[float, ...]:
        first, second = self.group["betas"]
        return rate / (1 - first ** (done + 1)), 1 / math.sqrt(1 - second ** (done + 1)), rate

    def apply(self, parameter: Tensor, gradient: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]) -> None:
        (mean, square), (size, correction, rate) = state, numbers
        (first, second), decay = self.group["betas"], self.group["weight_decay"]
        if decay and not self._decoupled:
            gradient = gradient + decay * parameter
        moved = parameter - rate * decay * parameter if decay and self._decoupled else parameter
        mean.copy_(first * mean + (1 - first) * gradient)
        square.copy_(second * square + (1 - second) * (gradient * gradient))
        parameter.copy_(moved - size * mean / (torch.sqrt(square) * correction + self.group["eps"]))

    def count(self) -> int:
        return int(self.optimizer.state[self.parameters[0]]["step"])

    def record(self, done: int) -> None:
        for parameter in self.parameters:
            self.optimizer.state[parameter]["step"].fill_(done)

    @property
    def _decoupled(self) -> bool:
        return isinstance(self.optimizer, AdamW) or bool(self.group.get("decoupled_weight_decay"))

    def _own_state(self, parameter: Tensor) -> list[Tensor]:
        state: dict[str, Any] = self.optimizer.state[parameter]
        if not state:
            where = parameter.device if self.group.get("fused") or self.group.get("capturable") else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=where)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return [state["exp_avg"], state["exp_avg_sq"]]


def update_rule(optimizer: Optimizer) -> UpdateRule:
    """The update of an optimiser: of torch's SGD, Adam and AdamW, or what its method `update_rule` returns.

    Args:
        optimizer: the optimiser.

    Returns:
        The rule.

    Raises:
        ValueError: if the optimiser cannot be part of a fused step, with the reason.

    """
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise ValueError("the optimiser has hooks")
    make_rule = getattr(optimizer, "update_rule", None)
    if make_rule is not None:
        rule: UpdateRule = make_rule()
        return rule
    if len(optimizer.param_groups) != 1:
        raise ValueError("the optimiser has several groups of parameters")
    group = optimizer.param_groups[0]
    special = [name for name in ("amsgrad", "maximize", "differentiable", "dampening") if group.get(name)]
    if special:
        raise ValueError(f"the optimiser's {special[0]} is not part of the fused step")
    if type(optimizer) in {SGD, light_optimizers.SGD}:
        return SGDRule(optimizer)
    if type(optimizer) in {Adam, AdamW, light_optimizers.Adam, light_optimizers.AdamW}:
        return AdamRule(optimizer)
    raise ValueError(f"the optimiser {type(optimizer).__name__} is not part of the fused step")
