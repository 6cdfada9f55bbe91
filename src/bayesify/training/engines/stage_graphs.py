"""Replays of a fleet's step in stages on a GPU: where kernels do the ends of it, they take the batch and count as well.

A step is one graph either way (`graphs.py`), but what torch does around the stages (the batch's rows, the keys, the sum
of the NLL) takes many small launches.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.errors import first_line
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.stages import Stages, check_finite, products
from bayesify.training.examples import TensorExamples, take

if TYPE_CHECKING:
    from bayesify.training.engines.stacked_step import StackedStep

logger = logging.getLogger("bayesify")


class StagedSteps(GraphedSteps):
    """Replays of a fleet's step in stages: where those are kernels, everything around the products is."""

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
            except Exception as problem:  # noqa: BLE001 -- without the kernels of its ends the step is as good
                logger.warning("kernels do not take the batch (%s): torch does", first_line(problem)[:160])
        return super()._capture(size)

    def _check(self, size: int) -> None:
        """Raise where a step by kernels is not the same step; everything stays as it was."""
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
        """The step by kernels, from the batch to the count of the steps."""
        from bayesify.training.engines import launches

        stages, state = self.stages, self.fused.state
        with products(stages.precision):
            leaves, keys, numbers = launches.fetch(stages, self, size)
            draws = launches.sample(stages, state, keys)
            nll, *found = stages.gradients(draws, leaves)
            launches.update(stages, state, keys, numbers, size, found, (nll, self.nll, self.batch))
