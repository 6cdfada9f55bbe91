"""Training steps on a GPU as replays of one captured graph, for batches that come from a loader or were augmented.

Each batch is copied into tensors that stay where they are, and the graph reads those. Batches of another shape, such as
a smaller last one, are made without a graph. Where all data is on the GPU, `graphs.py` copies nothing.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import first_line
from bayesify.training.batches import Batch
from bayesify.training.engines.comparing import unchanged
from bayesify.training.engines.fused import FusedStep, shape_of
from bayesify.training.engines.graphs import WARM_UP

logger = logging.getLogger("bayesify")


class BatchGraphs:
    """The fused step, replayed for batches of the shape that it was compiled for.

    Args:
        fused: the step, compiled.
        batches: one batch for each member, with the shape of those to come.

    """

    def __init__(self, fused: FusedStep, batches: list[Batch]) -> None:
        self.fused = fused
        leaves, self._layout = pytree.tree_flatten(batches)
        self._shape = shape_of(leaves)
        self._leaves = [_own(leaf) for leaf in leaves]
        where = fused.state[0].device
        self._step = torch.ones((), dtype=torch.int64, device=where)
        self._numbers = torch.tensor(fused.numbers(1.0, 1e-3), dtype=fused.state[0].dtype, device=where)
        self._nll: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batches: list[Batch], step: int, share: float, rate: float) -> Tensor:
        """Make one step; the arguments and the result are those of `FusedStep`.

        Args:
            batches: one batch for each member.
            step: number of the step, which keys its noise.
            share: weight of the KL.
            rate: learning rate.

        Returns:
            The batch's mean NLL, summed over members; the next step overwrites it.

        """
        leaves, layout = pytree.tree_flatten(batches)
        if self._graph is None or layout != self._layout or shape_of(leaves) != self._shape:
            return self.fused(batches, step, share, rate)
        for own, leaf in zip(self._leaves, leaves, strict=True):
            own.copy_(leaf, non_blocking=True)
        self._step.fill_(step)
        self._numbers.copy_(torch.tensor(self.fused.numbers(share, rate), dtype=self._numbers.dtype), non_blocking=True)
        self._graph.replay()
        self.fused.done += 1
        assert self._nll is not None
        return self._nll

    def capture(self) -> None:
        """Capture the graph; the state is the same before and after."""
        with torch.cuda.device_of(self._step), torch.cuda.stream(torch.cuda.current_stream()):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            # Trial steps load what cannot be loaded during a capture.
            with unchanged(self.fused.state):
                try:
                    with torch.cuda.stream(stream):
                        for _ in range(WARM_UP):
                            self._make()
                finally:
                    torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                self._nll = self._make()
            self._graph = graph

    def _make(self) -> Tensor:
        return self.fused.evaluate(self._layout, self._leaves, self._step, self._numbers)


def batch_graphs(fused: FusedStep, batches: list[Batch]) -> BatchGraphs | None:
    """Replays of a compiled step for batches of this shape; None (with one logged reason) where they cannot be made.

    Args:
        fused: the step, compiled for these batches.
        batches: one batch for each member.

    """
    made = BatchGraphs(fused, batches)
    try:
        made.capture()
    except Exception as problem:  # noqa: BLE001 -- the compiled step works without a graph
        logger.warning("steps are not replayed (%s): they are made one by one", first_line(problem)[:160])
        return None
    return made


def _own(leaf: Any) -> Tensor:
    copy: Tensor = torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    return copy.copy_(leaf)
