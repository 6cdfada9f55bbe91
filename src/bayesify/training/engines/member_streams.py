"""The members of an ensemble on one GPU: one member's step is compiled, and all members run it at the same time.

    stream 1    member a: forward, backward, update
    stream 2    member b: forward, backward, update         ... joined before the next step

A step of all members as one function would take as long to compile as all of them. Alone, the kernels of a small
network do not fill a GPU; side by side they do. Captured in a graph, the streams are branches of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.batches import Batch
from bayesify.training.engines.compiling import compile_function
from bayesify.training.engines.fused import check_capturable
from bayesify.training.engines.side_by_side import MemberObjective, RowStep, member_row
from bayesify.training.engines.updates import UpdateRule, update_rule
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Trainable

logger = logging.getLogger("bayesify")


class MemberStreams(RowStep):
    """The step of all members, each on its own stream of the GPU; in turn where there is none.

    Args:
        method: the ensemble in training.
        rule: the optimiser's update.

    """

    def __init__(self, method: Any, rule: UpdateRule) -> None:
        objective = MemberObjective(method)
        rows = [member_row(objective, rule, slice(member, member + 1)) for member in range(method.members)]
        super().__init__(method, objective, rows, rule)
        # What a trial has to put back is the state of all members.
        self._whole = member_row(objective, rule, slice(None))
        self.state = self._whole
        self._streams = [torch.cuda.Stream() for _ in rows] if self.state[0].is_cuda else []

    def compile(self, batches: list[Batch]) -> None:
        """Compile the step of one member for batches of this shape."""
        self.state = self.rows[0]
        try:
            super().compile(batches[:1])
        finally:
            self.state = self._whole

    def compile_function(self, function: Callable[..., Tensor], example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        return compile_function(function, example, lean=self.state[0].is_cuda)

    def evaluate(self, layout: Any, leaves: Sequence[Tensor], step: Tensor, numbers: Tensor) -> Tensor:
        """Make the step of every member on a flattened list of their batches."""
        losses = []
        for member, batch in enumerate(pytree.tree_unflatten(list(leaves), layout)):
            own, own_layout = pytree.tree_flatten([batch])
            with self._stream_of(member):
                losses.append(self.evaluate_on(self.rows[member], own_layout, own, step, numbers))
        for stream in self._streams:
            torch.cuda.current_stream().wait_stream(stream)
        return torch.stack(losses).sum()

    @contextmanager
    def _stream_of(self, member: int) -> Iterator[None]:
        if not self._streams:
            yield
            return
        stream = self._streams[member]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield


def member_streams(method: Trainable, optimizer: Optimizer, batches: list[Batch]) -> MemberStreams | None:
    """The compiled step of an ensemble whose members share nothing; None where it is something else or fails.

    Args:
        method: the method in training.
        optimizer: its optimiser.
        batches: one batch for each member, to compile for.

    """
    if not declares(method, "independent_members") or [name for name, _ in method.named_parameters()] != ["theta"]:
        return None
    try:
        check_capturable(method, optimizer, batches)
        step = MemberStreams(method, update_rule(optimizer))
        step.compile(batches)
    except Exception as problem:  # noqa: BLE001 -- all members as one function may work
        logger.info("members are not compiled alone (%s)", first_line(problem)[:160])
        return None
    return step
