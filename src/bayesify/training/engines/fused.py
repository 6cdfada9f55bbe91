"""One training step as one function of tensors: noise, weights, network, gradients, and the optimiser's update.

    (parameters, buffers, optimiser's state), batch, step number, numbers  ->  the same in place; the batch's NLL

Written once, it runs in three ways with the same arithmetic: as it is; traced and compiled, so that noise, sampling,
the prior's gradient and the update are a few passes over flat memory around the network's products; and, on a GPU,
captured in a graph (`graphs.py`). Nothing that changes from step to step is compiled in: the learning rate, the KL's
weight and the step number are tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.updates import UpdateRule, update_rule
from bayesify.training.examples import Batch
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Objective, Trainable

logger = logging.getLogger("bayesify")
# Compiled and plain arithmetic differ by rounding, which Adam turns into a sign where a gradient is nearly zero (and
# which is coarse in TF32): an update that differs by more than this share of its length differs by a mistake.
_TOLERANCE = 5e-2


class FusedStep:
    """The step of one method with one optimiser, compiled for each shape of batch that is worth it."""

    def __init__(self, method: Trainable, rule: UpdateRule, draws: int) -> None:
        self.method, self.rule, self.draws = method, rule, draws
        self.objective: nn.Module = _Objective(method, draws)
        self.names = [name for name, _ in self.objective.named_parameters()]
        self.buffers = dict(self.objective.named_buffers())
        self.done = rule.count()
        self.state: list[Tensor] = [
            *(parameter.detach() for parameter in self.objective.parameters()),
            *self.buffers.values(),
            *(tensor for slots in rule.state for tensor in slots),
        ]
        self._compiled: dict[Any, Callable[..., Tensor]] = {}

    def __call__(self, batches: list[Batch], step: int, share: float, rate: float) -> Tensor:
        """Make the step; the batch's mean NLL (summed over members)."""
        leaves, layout = pytree.tree_flatten(batches)
        numbers = self.numbers(share, rate)
        where = self.state[0].device
        arguments = (torch.tensor(step, device=where), torch.tensor(numbers, dtype=self.state[0].dtype, device=where))
        self.done += 1
        return self.evaluate(layout, leaves, *arguments)

    def evaluate(self, layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor) -> Tensor:
        """The step on a flattened batch: compiled where it was compiled for this shape, else as it is."""
        return self.evaluate_on(self.state, layout, leaves, step, numbers)

    def evaluate_on(
        self, state: Sequence[Tensor], layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor
    ) -> Tensor:
        """The same on a state that may be another network's."""
        run = self._compiled.get(shape_of(leaves))
        if run is not None:
            # A loader may lay one batch out in memory in another way than the one that was compiled for.
            return run(*state, step, numbers, *(leaf.contiguous() for leaf in leaves))
        return self.run(layout, *state, step, numbers, *leaves)

    def numbers(self, share: float, rate: float, ahead: int = 0) -> tuple[float, ...]:
        """The KL's weight and what the optimiser's update depends on, `ahead` steps from now."""
        return (share, *self.rule.numbers(rate, self.done + ahead))

    def compile(self, batches: list[Batch]) -> None:
        """Compile for batches of this shape, and check the result against the plain arithmetic."""
        leaves, layout = pytree.tree_flatten(batches)
        leaves = [leaf.contiguous() for leaf in leaves]
        if shape_of(leaves) in self._compiled:
            return
        where = self.state[0].device
        # The second step of an imaginary training: the first would divide by zeros of the optimiser's state.
        numbers = torch.tensor(self.numbers(1.0, 1e-3), dtype=self.state[0].dtype, device=where)
        arguments = (torch.tensor(1, device=where), numbers, *leaves)

        def flat(*tensors: Tensor) -> Tensor:
            return self.run(layout, *tensors)

        def result(run: Callable[..., Tensor]) -> list[Tensor]:
            copies = [tensor.clone() for tensor in self.state]
            with _all_digits():
                return [run(*copies, *arguments), *copies]

        self.method.train()
        # The plain arithmetic first: what a network learns of itself from its first batch, it cannot learn in a trace.
        expected = result(flat)
        compiled = self.compile_function(flat, (*self.state, *arguments))
        check_same(expected, result(compiled), [torch.zeros_like(expected[0]), *self.state])
        self._compiled[shape_of(leaves)] = compiled

    def compile_function(self, function: Callable[..., Tensor], example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """As the function of that name does."""
        return compile_function(function, example)

    def run(self, layout: Any, *tensors: Tensor) -> Tensor:
        """The step itself, on tensors in the order of `state`, then step number, numbers and the batch's leaves."""
        known = len(self.state)
        state, (step, numbers, *leaves) = tensors[:known], tensors[known:]
        batches = pytree.tree_unflatten(leaves, layout)
        share, *rates = numbers.unbind()
        parameters = [tensor.detach().requires_grad_() for tensor in state[: len(self.names)]]
        rest = iter(state[len(self.names) :])
        buffers = {name: next(rest) for name in self.buffers}
        with torch.enable_grad():
            given = {**dict(zip(self.names, parameters, strict=True)), **buffers}
            loss, nll = functional_call(self.objective, given, (batches, step, share))
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            own = [[next(rest) for _ in slots] for slots in self.rule.state]
            self.rule.apply_all(state[: len(self.names)], gradients, own, rates)
        found: Tensor = nll.detach()
        return found

    def record(self) -> None:
        """Leave the optimiser as if it had made the steps itself."""
        self.rule.record(self.done)


def fused_step(method: Trainable, optimizer: Optimizer, draws: int, batches: list[Batch]) -> FusedStep | None:
    """The compiled step where everything in it can be; otherwise None, with one logged reason."""
    try:
        check_capturable(method, optimizer, batches)
        step = FusedStep(method, update_rule(optimizer), draws)
        step.compile(batches)
    except Exception as problem:  # noqa: BLE001 -- no compiler, a layer that cannot be captured: the plain path is there
        logger.warning("the step is not fused (%s): the plain path is used", first_line(problem)[:160])
        return None
    return step


def shape_of(leaves: Sequence[Tensor]) -> tuple[Any, ...]:
    """What a compiled step is compiled for."""
    return tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)


def signed(seed: int) -> int:
    """The number that a tensor can hold with the 64 bits that keys are made of."""
    return (seed + 2**63) % 2**64 - 2**63


def check_capturable(method: Trainable, optimizer: Optimizer, batches: list[Batch]) -> None:
    """Raise where the step is not one function of tensors."""
    if not declares(method, "capturable"):
        raise ValueError(f"the step of {method.name} is not one function of tensors")
    if {id(p) for p in method.parameters()} != {id(p) for group in optimizer.param_groups for p in group["params"]}:
        raise ValueError("the optimiser does not hold all parameters")
    if not all(parameter.requires_grad for parameter in method.parameters()):
        raise ValueError("a parameter of the method is held fixed")
    if len({parameter.dtype for parameter in method.parameters()}) > 1:
        raise ValueError("the parameters have different dtypes")
    trace = method.network.traced(batches[0][0])
    if trace.problem is not None:
        raise ValueError(f"the network could not be traced: {trace.problem}")
    if trace.uses_generator:
        raise ValueError("the network draws random numbers of its own")


class _Objective(nn.Module):
    """The objective as a module, so that its parameters and buffers, and the seed among them, can be given."""

    seed: Tensor

    def __init__(self, method: Trainable, draws: int) -> None:
        super().__init__()
        self.method: Any = method
        self.draws = draws
        # A tensor like the step number, so that what was compiled for one seed serves the others.
        self.register_buffer("seed", torch.tensor(signed(method.seed), device=next(method.parameters()).device))

    def forward(self, batches: list[Batch], step: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        own, self.method.seed = self.method.seed, self.seed
        try:
            objective: Objective = self.method.captured(batches, step=step, share=share, draws=self.draws)
        finally:
            self.method.seed = own
        self.method.absorb(objective)
        return objective.loss, objective.nll


@contextmanager
def _all_digits() -> Iterator[None]:
    """Products and convolutions without TF32, whose rounding depends on the algorithm that a GPU happens to choose."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def check_same(
    plain: Sequence[Tensor], compiled: Sequence[Tensor], before: Sequence[Tensor], tolerance: float = _TOLERANCE
) -> None:
    """Raise where a compiled step's results differ from the plain one's by more than rounding."""
    for expected, found, old in zip(plain, compiled, before, strict=True):
        if expected.is_floating_point():
            allowed = tolerance * (expected - old).norm() + 1e-6 * expected.norm()
            same = bool((expected - found).norm() <= allowed)
        else:
            same = torch.equal(expected, found)
        if not same:
            raise ValueError("the compiled step differs from the plain one")
