"""One training step as one function of tensors: noise, weights, network, gradients, and the optimiser's update.

    (parameters, buffers, optimiser's state), batch, step number, numbers  ->  the same in place; the batch's NLL

The function runs in three ways with the same arithmetic: as plain PyTorch; traced and compiled; or, on a GPU, captured
in a graph (`graphs.py`). Compiled, the noise, the sampling, the prior's gradient and the update are a few passes over
flat memory around the network's products. What changes from step to step (learning rate, weight of the KL, step number)
is passed as tensors and never compiled in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.batches import Batch
from bayesify.training.engines.comparing import check_same, copied, full_products, unchanged
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.in_pieces import WORTH_PIECES, pieces_of
from bayesify.training.engines.updates import AdamRule, UpdateRule, update_rule
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Objective, Trainable

logger = logging.getLogger("bayesify")


class FusedStep:
    """The step of one method with one optimiser, compiled for some shapes of batches.

    Args:
        method: the method in training.
        rule: the optimiser's update.
        draws: weight draws per step.

    Attributes:
        state: parameters, buffers and the optimiser's state, which a step changes in place.
        done: number of steps made so far.
        compile_seconds: how long the compiler took, the last time.

    """

    compile_seconds: float = 0.0

    def __init__(self, method: Trainable, rule: UpdateRule, draws: int) -> None:
        self.method, self.rule, self.draws = method, rule, draws
        self.objective: nn.Module = _Objective(method, draws)
        self.names = [name for name, _ in self.objective.named_parameters()]
        outside = {f"method.{name}" for name in method.outside_steps}
        self.buffers = {name: tensor for name, tensor in self.objective.named_buffers() if name not in outside}
        self.done = rule.count()
        self.state: list[Tensor] = [
            *(parameter.detach() for parameter in self.objective.parameters()),
            *self.buffers.values(),
            *(tensor for slots in rule.state for tensor in slots),
        ]
        self._compiled: dict[Any, Callable[..., Tensor]] = {}

    def __call__(self, batches: list[Batch], step: int, share: float, rate: float) -> Tensor:
        """Make one step.

        Args:
            batches: one batch for each member.
            step: number of the step, which keys its noise.
            share: weight of the KL.
            rate: learning rate.

        Returns:
            The batch's mean NLL, summed over members.

        """
        leaves, layout = pytree.tree_flatten(batches)
        numbers = self.numbers(share, rate)
        # From the host's own memory this does not wait for the steps under way.
        arguments = [
            tensor.to(self.state[0].device, non_blocking=True)
            for tensor in (torch.tensor(step), torch.tensor(numbers, dtype=self.state[0].dtype))
        ]
        self.done += 1
        return self.evaluate(layout, leaves, *arguments)

    def evaluate(self, layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor) -> Tensor:
        """Make the step on a flattened batch: compiled where it was compiled for this shape, otherwise plain."""
        return self.evaluate_on(self.state, layout, leaves, step, numbers)

    def evaluate_on(
        self, state: Sequence[Tensor], layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor
    ) -> Tensor:
        """Make the step on a given state, which may be another network's."""
        run = self._compiled.get(shape_of(leaves))
        if run is not None:
            # A loader's batches may differ in memory layout from the one that was compiled for.
            return run(*state, step, numbers, *(leaf.contiguous() for leaf in leaves))
        return self.run(layout, *state, step, numbers, *leaves)

    def numbers(self, share: float, rate: float, ahead: int = 0) -> tuple[float, ...]:
        """The weight of the KL and the numbers of the optimiser's update, `ahead` steps from now."""
        return (share, *self.rule.numbers(rate, self.done + ahead))

    def compile(self, batches: list[Batch]) -> None:
        """Compile for batches of this shape, and check the result against the plain arithmetic."""
        leaves, layout = pytree.tree_flatten(batches)
        leaves = [leaf.contiguous() for leaf in leaves]
        if shape_of(leaves) in self._compiled:
            return
        where = self.state[0].device
        # Compared at the second step: at the first, Adam would divide by zeros of its state.
        numbers = torch.tensor(self.numbers(1.0, 1e-3), dtype=self.state[0].dtype, device=where)
        arguments = (torch.tensor(1, device=where), numbers, *leaves)

        def flat(*tensors: Tensor) -> Tensor:
            return self.run(layout, *tensors)

        self.method.train()
        # Plain first: the network is examined on its first batch, which a trace for the compiler does not allow.
        expected = self._after(flat, arguments)
        began = time.perf_counter()
        compiled = self.compile_function(flat, (*self.state, *arguments))
        self.compile_seconds = time.perf_counter() - began
        network, full = self.method.network, None
        if network.training_precision != "full":
            kept, network.training_precision = network.training_precision, "full"
            try:
                full = self._after(flat, arguments)
            finally:
                network.training_precision = kept
        before = [torch.zeros_like(expected[0]), *self.state]
        slots = [f"the optimiser's tensor {number + 1}" for number in range(len(self.state))]
        names = ["the loss", *self.names, *self.buffers, *slots]
        rounded = self.names if isinstance(self.rule, AdamRule) else ()
        check_same(expected, self._after(compiled, arguments), before, full=full, names=names, rounded=rounded)
        self._compiled[shape_of(leaves)] = compiled

    def _after(self, run: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> list[Tensor]:
        """The loss and the state after a step on a copy of the state."""
        if self.state[0].is_cuda:
            # A GPU may have no room for a step on another state.
            with full_products(), unchanged(self.state):
                nll = run(*self.state, *arguments)
                copies = copied([*self.state, nll])
                return [copies[-1], *copies[:-1]]
        copies = [tensor.clone() for tensor in self.state]
        with full_products():
            return [run(*copies, *arguments), *copies]

    def compile_function(self, function: Callable[..., Tensor], example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """Compile one function; engines that run in several threads compile for those."""
        if type(self) is FusedStep and self.state[0].is_cuda:
            return compile_function(function, example, lean=True)
        sizes = [place.shape.numel() for place in self.method.network.places]
        if type(self) is FusedStep and sum(sizes) >= WORTH_PIECES:
            return compile_function(function, example, pieces=pieces_of(sizes))
        return compile_function(function, example)

    def run(self, layout: Any, *tensors: Tensor) -> Tensor:
        """The step itself; `tensors` are the state, then step number, numbers and the leaves of the batch."""
        known = len(self.state)
        state, (step, numbers, *leaves) = tensors[:known], tensors[known:]
        batches = pytree.tree_unflatten(leaves, layout)
        share, *rates = numbers.unbind()
        parameters = [tensor.detach().requires_grad_() for tensor in state[: len(self.names)]]
        rest = iter(state[len(self.names) :])
        buffers = {name: next(rest) for name in self.buffers}
        with torch.enable_grad():
            named = {**dict(zip(self.names, parameters, strict=True)), **buffers}
            loss, nll = functional_call(self.objective, named, (batches, step, share))
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            self.rule.begin(step, buffers["seed"])
            optimizer_state = [[next(rest) for _ in slots] for slots in self.rule.state]
            self.rule.apply_all(state[: len(self.names)], gradients, optimizer_state, rates)
        batch_nll: Tensor = nll.detach()
        return batch_nll

    def record(self) -> None:
        """Tell the optimiser how many steps were made, so that it can go on from there."""
        self.rule.record(self.done)


def fused_step(method: Trainable, optimizer: Optimizer, draws: int, batches: list[Batch]) -> FusedStep | None:
    """The compiled step, or None (with one logged reason) where it cannot be compiled.

    Args:
        method: the method in training.
        optimizer: its optimiser.
        draws: weight draws per step.
        batches: one batch for each member, to compile for.

    """
    try:
        check_capturable(method, optimizer, batches)
        step = FusedStep(method, update_rule(optimizer), draws)
        step.compile(batches)
    except Exception as problem:  # noqa: BLE001 -- no compiler or a layer that cannot be captured: the plain path works
        logger.warning("the step is not fused (%s): the plain path is used", first_line(problem)[:160])
        return None
    return step


def shape_of(leaves: Sequence[Tensor]) -> tuple[Any, ...]:
    """Shapes and dtypes of a batch, for which a step is compiled."""
    return tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)


def signed(seed: int) -> int:
    """A seed as a signed 64-bit integer, which a tensor can hold; keys use the same 64 bits."""
    return (seed + 2**63) % 2**64 - 2**63


def check_capturable(method: Trainable, optimizer: Optimizer, batches: list[Batch]) -> None:
    """Raise where the step is not one function of tensors."""
    if not declares(method, "capturable") or not method.fusible:
        raise ValueError(f"the step of {method.name} is not one function of tensors")
    if {id(p) for p in method.parameters()} != {id(p) for group in optimizer.param_groups for p in group["params"]}:
        raise ValueError("the optimiser does not have all parameters of the method")
    if not all(parameter.requires_grad for parameter in method.parameters()):
        raise ValueError("a parameter of the method is frozen")
    if len({parameter.dtype for parameter in method.parameters()}) > 1:
        raise ValueError("the parameters have different dtypes")
    trace = method.network.traced(batches[0][0])
    if trace.problem is not None:
        raise ValueError(f"the network could not be traced: {trace.problem}")
    if trace.uses_generator:
        raise ValueError("the network draws from torch's generator")


class _Objective(nn.Module):
    """The objective as a module, so that parameters, buffers and the seed can be passed to `functional_call`."""

    seed: Tensor

    def __init__(self, method: Trainable, draws: int) -> None:
        super().__init__()
        self.method: Any = method
        self.draws = draws
        # A tensor, so that a step compiled for one seed serves other seeds.
        self.register_buffer("seed", torch.tensor(signed(method.seed), device=next(method.parameters()).device))

    def forward(self, batches: list[Batch], step: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        seed, self.method.seed = self.method.seed, self.seed
        try:
            objective: Objective = self.method.captured(batches, step=step, share=share, draws=self.draws)
        finally:
            self.method.seed = seed
        self.method.update_statistics(objective)
        return objective.loss, objective.nll
