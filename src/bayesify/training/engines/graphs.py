"""Training steps on a GPU as replays of one captured graph, with the data in the GPU's memory.

Once per epoch, the order of the examples, the learning rates and the weights of the KL are copied into tensors there.
The graph reads the row that a counter points to and moves the counter. A step copies nothing from the host.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.batches import TensorExamples, take
from bayesify.training.engines.comparing import unchanged
from bayesify.training.engines.fused import FusedStep

logger = logging.getLogger("bayesify")
WARM_UP = 3
# Compiling for a smaller last batch, of which there is one in an epoch, has to take less than this.
_SECONDS_FOR_ANOTHER_SIZE = 20.0


class GraphedSteps:
    """The fused step over data in memory: one captured graph for each size of batch.

    Args:
        fused: the step.
        examples: the data, on the GPU.
        batch_size: examples per step.
        members: number of networks, each of which has its own order of the examples.
        networks: shape of the NLL: `()`, or `(networks,)` for stacked networks.

    """

    def __init__(
        self,
        fused: FusedStep,
        examples: TensorExamples,
        batch_size: int,
        members: int,
        networks: tuple[int, ...] = (),
    ) -> None:
        self.fused, self.examples, self.batch_size = fused, examples, batch_size
        device, size = examples.y.device, examples.n_data
        batches = -(-size // batch_size)
        shape = torch.tensor(fused.numbers(1.0, 1.0)).shape
        self.order = torch.zeros(members, size, dtype=torch.int64, device=device)
        self.numbers = torch.zeros(batches, *shape, dtype=fused.state[0].dtype, device=device)
        self.first_step = torch.zeros((), dtype=torch.int64, device=device)
        self.batch = torch.zeros((), dtype=torch.int64, device=device)
        self.nll = torch.zeros(networks, dtype=torch.float64, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}

    def begin(self, order: Tensor, numbers: Sequence[Any] | Tensor, step: int, skip: int) -> None:
        """Start an epoch.

        Args:
            order: order of the examples for each member, `[members, n]`.
            numbers: what each step depends on, one row for each batch.
            step: number of the epoch's first step.
            skip: batches to leave out, where training resumes in the middle of an epoch.

        """
        self.order.copy_(order)
        self.numbers.copy_(torch.as_tensor(numbers, dtype=self.numbers.dtype))
        self.first_step.fill_(step)
        self.batch.fill_(skip)
        self.nll.zero_()

    def step(self, size: int) -> None:
        """Make the next step on a batch of this size; NLL times size is added to `nll`."""
        if size not in self._graphs:
            self._graphs[size] = self._captured(size)
        graph = self._graphs[size]
        if graph is not None:
            graph.replay()
        else:
            with torch.cuda.device_of(self.order):
                self._step(size)
        self.fused.done += 1

    def replays(self, size: int) -> bool:
        """Whether steps on batches of this size have been captured."""
        return self._graphs.get(size) is not None

    def _captured(self, size: int) -> torch.cuda.CUDAGraph | None:
        """The graph for batches of this size; None (with one logged reason) where it cannot be captured."""
        if size != self.batch_size and self.fused.compile_seconds > _SECONDS_FOR_ANOTHER_SIZE:
            return None
        try:
            # Streams and kernels belong to the current device, which may not be the data's. A capture that fails leaves
            # its own stream as the current one.
            with torch.cuda.device_of(self.order), torch.cuda.stream(torch.cuda.current_stream()):
                return self._capture(size)
        except Exception as problem:  # noqa: BLE001 -- a failure at the last, smaller batch must not end the training
            reason = first_line(problem)[:160]
            logger.warning("steps on batches of %d are not replayed (%s): they are made one by one", size, reason)
            return None

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        leading = torch.arange(size, device=self.order.device)
        # Each size is compiled first: plain code may create small tensors, which a capture does not allow.
        self.fused.compile([(take(self.examples.x, leading), self.examples.y[leading])] * self.order.shape[0])
        # Trial steps load what cannot be loaded during a capture; their changes are undone.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with unchanged([*self.fused.state, self.batch, self.nll]):
            try:
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UP):
                        self._step(size)
            finally:
                torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Torch's default stream for captures stays on the device of the first capture.
        with torch.cuda.graph(graph, stream=stream):
            self._step(size)
        return graph

    def _step(self, size: int) -> None:
        places = self.batch * self.batch_size + torch.arange(size, device=self.order.device)
        # A trial step near the end of the data must not read beyond it.
        rows = self.order.index_select(1, places.clamp(max=self.order.shape[1] - 1))
        # One look-up serves all members.
        fetched = take((self.examples.x, self.examples.y), rows)
        batches = [take(fetched, member) for member in range(len(rows))]
        leaves, layout = pytree.tree_flatten(batches)
        at = self.batch.clamp(max=self.numbers.shape[0] - 1).view(1)
        numbers = self.numbers.index_select(0, at).squeeze(0)
        nll = self.fused.evaluate(layout, leaves, self.first_step + self.batch, numbers)
        self.nll.add_(nll.double() * size)
        self.batch.add_(1)
