"""Training steps on a GPU as replays of one captured graph, with the data and everything that changes resident there.

An epoch's order, learning rates and KL weights are put into tensors once; the graph reads the row that a counter points
to and moves the counter on. Nothing travels and Python only says "again".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.engines.fused import FusedStep
from bayesify.training.examples import TensorExamples, take

logger = logging.getLogger("bayesify")
_WARM_UP = 3


class GraphedSteps:
    """The fused step over data in memory: one graph for each size of batch that can be captured."""

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
        """Set an epoch up: members' orders `[members, n]`, each batch's numbers, the step of its first batch."""
        self.order.copy_(order)
        self.numbers.copy_(torch.as_tensor(numbers, dtype=self.numbers.dtype))
        self.first_step.fill_(step)
        self.batch.fill_(skip)
        self.nll.zero_()

    def step(self, size: int) -> None:
        """The next step, on a batch of this size; its NLL, times the size, is added to `nll`."""
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
        """Whether steps on batches of this size are replays, as far as one was made."""
        return self._graphs.get(size) is not None

    def _captured(self, size: int) -> torch.cuda.CUDAGraph | None:
        """The graph of this size; None, with one logged reason and everything as it was, where there is none."""
        try:
            # Streams and kernels are those of the current device, which need not be the one that the data is on; and a
            # capture that fails leaves its own stream behind as the current one.
            with torch.cuda.device_of(self.order), torch.cuda.stream(torch.cuda.current_stream()):
                return self._capture(size)
        except Exception as problem:  # noqa: BLE001 -- the last, smaller batch must not end what has been trained by then
            reason = first_line(problem)[:160]
            logger.warning("steps on batches of %d are not replayed (%s): they are made one by one", size, reason)
            return None

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        leading = torch.arange(size, device=self.order.device)
        # Each size is compiled: what is not may make small tensors on the way, which a capture does not allow.
        self.fused.compile([(take(self.examples.x, leading), self.examples.y[leading])] * self.order.shape[0])
        # Trial steps load what a capture may not load; whatever they change is put back.
        changed = [*self.fused.state, self.batch, self.nll]
        saved = [tensor.clone() for tensor in changed]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    self._step(size)
        finally:
            torch.cuda.current_stream().wait_stream(stream)
            for tensor, old in zip(changed, saved, strict=True):
                tensor.copy_(old)
        graph = torch.cuda.CUDAGraph()
        # Torch's own stream for captures is for good on the device of the first one.
        with torch.cuda.graph(graph, stream=stream):
            self._step(size)
        return graph

    def _step(self, size: int) -> None:
        places = self.batch * self.batch_size + torch.arange(size, device=self.order.device)
        # A trial step near the end of the data must not reach beyond it.
        rows = self.order.index_select(1, places.clamp(max=self.order.shape[1] - 1))
        # One look-up for all members; each has its rows of what that gives.
        found = take((self.examples.x, self.examples.y), rows)
        batches = [take(found, member) for member in range(len(rows))]
        leaves, layout = pytree.tree_flatten(batches)
        at = self.batch.clamp(max=self.numbers.shape[0] - 1).view(1)
        numbers = self.numbers.index_select(0, at).squeeze(0)
        nll = self.fused.evaluate(layout, leaves, self.first_step + self.batch, numbers)
        self.nll.add_(nll.double() * size)
        self.batch.add_(1)
