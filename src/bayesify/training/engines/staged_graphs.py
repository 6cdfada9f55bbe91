"""Replays of a step in stages on a GPU, where kernels also fetch the batch and move the counter.

A step is one graph in any case (`graphs.py`). Around the stages, torch would need many small launches: for the rows of
the batch, the keys and the sum of the NLL.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.errors import first_line
from bayesify.training.batches import TensorExamples, take
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.staged_step import Stages, check_finite, products

if TYPE_CHECKING:
    from bayesify.training.engines.stacked_step import StackedStep

logger = logging.getLogger("bayesify")


class StagedSteps(GraphedSteps):
    """Replays of the step of stacked networks in stages; kernels run everything but the products, where they can."""

    def __init__(self, step: StackedStep, stages: Stages, examples: TensorExamples, batch_size: int) -> None:
        super().__init__(step, examples, batch_size, 1, (len(step.stack),))
        self.stages = stages
        self._by_kernels: set[int] = set()

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        x, y = self.examples.x, self.examples.y
        batch = (take(x, slice(size)), y[:size])
        self.fused.compile([batch])
        if isinstance(x, Tensor) and x.is_contiguous() and y.is_contiguous() and self.stages.by_kernels(batch):
            try:
                self._check(size)
                self._by_kernels.add(size)
            except Exception as problem:  # noqa: BLE001 -- torch can fetch the batch as well
                logger.warning("kernels do not fetch the batch (%s): torch does", first_line(problem)[:160])
        return super()._capture(size)

    def _check(self, size: int) -> None:
        """Raise where a step by kernels differs from the same step by torch; the state stays as it was."""
        changed = [*self.fused.state, self.nll, self.batch]
        before = [tensor.clone() for tensor in changed]
        results = []
        for step in (super()._step, self._advance):
            try:
                step(size)
                results.append([tensor.clone() for tensor in changed])
            finally:
                for tensor, old in zip(changed, before, strict=True):
                    tensor.copy_(old)
        (*expected, at), (*found, found_at) = results
        check_finite(expected, found, before[:-1])
        if at != found_at:
            raise ValueError(f"the counter is at {int(found_at)}, not at {int(at)}")

    def _step(self, size: int) -> None:
        if size in self._by_kernels:
            self._advance(size)
        else:
            super()._step(size)

    def _advance(self, size: int) -> None:
        """The whole step by kernels: from fetching the batch to moving the counter."""
        from bayesify.training.engines import kernel_launches

        stages, state = self.stages, self.fused.state
        with products(stages.precision):
            leaves, keys, numbers = kernel_launches.fetch(stages, self, size)
            draws = kernel_launches.sample(stages, state, keys)
            nll, *found = stages.gradients(draws, leaves)
            kernel_launches.update(stages, state, keys, numbers, size, found, (nll, self.nll, self.batch))
