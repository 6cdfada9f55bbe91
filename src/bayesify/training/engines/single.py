"""Training one network on a GPU as a stack of one: the step runs in stages (`staged_step.py`), by kernels.

The stack's parameters and optimiser state are views of the network's with one more axis. Nothing is copied, so
checkpoints and validation see the network as after the fused step (`fused.py`). On both paths the noise is keyed by
seed, step and draw, so both give the same numbers, to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bayesify.errors import first_line
from bayesify.training.batches import Batch, TensorExamples
from bayesify.training.engines.fused import check_capturable, fused_step
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.member_streams import member_streams
from bayesify.training.engines.stacked import Stack
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.engines.staged_graphs import StagedSteps
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Trainable

logger = logging.getLogger("bayesify")


class SingleStep(StackedStep):
    """The step of one network, on the tensors of the network and its optimiser."""

    def __init__(self, method: Any, optimizer: Optimizer, draws: int, precision: str = "float32") -> None:
        super().__init__(_StackOfOne(method), optimizer, draws, precision)

    def bind(self, optimizer: Optimizer) -> None:
        super().bind(optimizer)
        if [id(parameter) for parameter in self.rule.parameters] != [
            id(parameter) for parameter in self.method.parameters()
        ]:
            raise ValueError("the optimiser has the parameters in another order than the network")
        # The stack's parameters have the axis of networks already.
        known = len(self.stack.parameters)
        self.state[known:] = [tensor.unsqueeze(0) for tensor in self.state[known:]]

    def evaluate(self, layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor) -> Tensor:
        return super().evaluate(layout, leaves, step, numbers).squeeze(0)


def graphed_steps(
    method: Trainable, optimizer: Optimizer, draws: int, examples: TensorExamples, batch_size: int, batches: list[Batch]
) -> GraphedSteps | None:
    """Replays of the step on a GPU: in stages by kernels, or else fused.

    Args:
        method: the method in training.
        optimizer: its optimiser.
        draws: weight draws per step.
        examples: the data, on the GPU.
        batch_size: examples per step.
        batches: one batch for each member, to compile for.

    Returns:
        The replays, or None (with a logged reason) where the step cannot be captured.

    """
    staged = staged_steps(method, optimizer, draws, examples, batch_size, batches)
    if staged is not None:
        return staged
    fused = member_streams(method, optimizer, batches) or fused_step(method, optimizer, draws, batches)
    return None if fused is None else GraphedSteps(fused, examples, batch_size, method.members)


def staged_steps(
    method: Trainable, optimizer: Optimizer, draws: int, examples: TensorExamples, batch_size: int, batches: list[Batch]
) -> StagedSteps | None:
    """Replays of the step in stages where kernels run them; otherwise None, with a logged reason where they fail."""
    if not declares(method, "stackable") or method.network.training_precision != "full":
        return None  # the kernels make the passes in the precision of the weights
    try:
        check_capturable(method, optimizer, batches)
        precision = "float32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        step = SingleStep(method, optimizer, draws, precision)
    except (TypeError, ValueError):
        return None  # it cannot be stacked; it may still be fused
    stages = step.stages
    if stages is None or not isinstance(examples.x, Tensor) or not stages.has_kernels():
        return None
    try:
        step.compile(batches, kernels_only=True)
    except Exception as problem:  # noqa: BLE001 -- without kernels the fused step is better than compiled stages
        logger.warning("kernels are not used (%s): the step is compiled as a whole", first_line(problem)[:160])
        return None
    return StagedSteps(step, stages, examples, batch_size)


class _StackOfOne(Stack):
    """A stack whose parameters are views of one network's: changing them changes the network."""

    def __init__(self, method: Any) -> None:
        super().__init__([method])
        self.parameters = [nn.Parameter(parameter.detach().unsqueeze(0)) for parameter in method.parameters()]
        self.numbers, self.seeds = self.numbers.to(method.mu), self.seeds.to(method.mu.device)
