"""An epoch's steps, made in the fastest way there is.

    replays        of a graph on a GPU (`graphs.py`, `stages.py`), the data resident there
    side by side   handed out to the cores of a CPU (`side_by_side.py`), a network of several to each
    fused          compiled as one function (`fused.py`)
    plain          by autograd and torch's optimiser: whatever cannot be captured, or is not worth compiling

Which one it is is decided at the first step, and written into the plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.training.engines.compiling import worth_compiling
from bayesify.training.engines.fused import FusedStep, fused_step
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.side_by_side import SideBySideSteps, members_side_by_side
from bayesify.training.engines.single import graphed_steps
from bayesify.training.examples import Batch, Examples, IndexedExamples, TensorExamples, to_device
from bayesify.training.plan import Plan, Progress
from bayesify.training.schedule import StepSchedule
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Trainable


class Engine:
    """Makes the steps of one method's training by a plan."""

    def __init__(
        self, method: Trainable, examples: Examples, plan: Plan, optimizer: Optimizer, step_schedule: StepSchedule
    ) -> None:
        self.method, self.examples, self.plan, self.optimizer = method, examples, plan, optimizer
        self.step_schedule = step_schedule
        self._rates: list[float] = [group["lr"] for group in optimizer.param_groups]
        self._device = next(method.parameters()).device
        self._asked = False
        self._fused: FusedStep | None = None
        self._graphed: GraphedSteps | SideBySideSteps | None = None
        self._ahead: tuple[Tensor, Tensor] | None = None  # order and numbers of the epoch to come

    def epoch(self, epoch: int, skip: int, progress: Progress, tell: Callable[[str | None], None]) -> Iterator[None]:
        """Make an epoch's steps from batch `skip` on, one by one; then add up what they showed.

        Whoever asks for the next step counts it in `progress`; `tell` is told why the first one takes long.
        """
        plan, members = self.plan, self.method.members
        total = torch.tensor(progress.nll_sum, dtype=torch.float64, device=self._device)
        if not self._asked and isinstance(self.examples, IndexedExamples):
            leading = torch.arange(min(plan.batch_size, self.examples.n_data))
            batch = to_device(self.examples.fetch(leading), self._device)
            self._fuse([batch] * members, tell)
        try:
            if self._graphed is not None:
                yield from self._replays(self._graphed, epoch, skip, progress, total)
                return
            batches = self.examples.batches(plan.batch_size, plan.seed, epoch, members, skip)
            for batch in itertools.islice(batches, self.step_schedule.batches - skip):
                where = [to_device(part, self._device) for part in batch]
                size = where[0][1].shape[0]
                if not self._asked:
                    self._fuse(where, tell)
                # Weighted by its size, so that an epoch's mean is the data's whatever the size of the last batch.
                total += self._step(where, progress.step, size).double() * size
                progress.seen += size
                yield
        finally:
            progress.nll_sum = float(total)

    def record(self) -> None:
        """Leave the optimiser as if it had made the steps itself."""
        if self._fused is not None:
            self._fused.record()

    def _step(self, batch: list[Batch], step: int, size: int) -> Tensor:
        method, share, rate = self.method, self.step_schedule.share(step, size), self._set_rates(step)
        if self._fused is not None:
            return self._fused(batch, step, share, rate)
        self.optimizer.zero_grad(set_to_none=True)
        objective = method.backward(batch, step=step, share=share, draws=self.plan.draws)
        self.optimizer.step()
        method.absorb(objective)
        return objective.nll.detach()

    def _replays(
        self, graphed: GraphedSteps | SideBySideSteps, epoch: int, skip: int, progress: Progress, total: Tensor
    ) -> Iterator[None]:
        batches = self.step_schedule.batches
        ahead, self._ahead = self._ahead, None
        order, numbers = self._prepared(graphed, epoch, skip) if ahead is None or skip else ahead
        graphed.begin(order, numbers, epoch * batches, skip)
        self._set_rates((epoch + 1) * batches - 1)
        try:
            for size in self.step_schedule.sizes[skip:]:
                graphed.step(size)
                progress.seen += size
                yield
            if epoch + 1 < self.plan.epochs:
                # The device is still at work: time for what the next epoch needs.
                self._ahead = self._prepared(graphed, epoch + 1, 0)
        finally:
            total += graphed.nll.sum()

    def _prepared(self, graphed: GraphedSteps | SideBySideSteps, epoch: int, skip: int) -> tuple[Tensor, Tensor]:
        """An epoch's order, and what each of its steps depends on."""
        assert isinstance(self.examples, TensorExamples)
        fused = graphed.fused

        def numbers(share: float, rate: float, number: int) -> tuple[float, ...]:
            return fused.numbers(share, rate, ahead=number - skip)

        # The table first: the order's keys are copied to the device, which waits for the steps that are under way.
        table = self.step_schedule.table(epoch, numbers, fused.state[0].dtype)[:, 0]
        return self.examples.orders(self.plan.seed, epoch, self.method.members, self._device), table

    def _set_rates(self, step: int) -> float:
        """Tell the optimiser, which others look at, what this step's learning rates are; the first of them."""
        factor = self.step_schedule.factor(step)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        return self._rates[0] * factor

    def _fuse(self, batch: list[Batch], tell: Callable[[str | None], None]) -> None:
        """Decide how the steps are made."""
        plan, method, self._asked = self.plan, self.method, True
        wanted = plan.compiled
        if wanted is None:
            size = method.network.size * plan.draws
            wanted = declares(method, "capturable") and worth_compiling(size, self.step_schedule.steps, self._device)
        if wanted:
            tell("compiling the step, once")
            held = self.examples if isinstance(self.examples, TensorExamples) else None
            if held is not None:
                self._graphed = self._faster(held, batch)
            if self._graphed is not None:
                self._fused = self._graphed.fused
            elif held is None or not self._on_gpu:  # a graph would have been captured of that step
                self._fused = fused_step(method, self.optimizer, plan.draws, batch)
            tell(None)
        self.plan = method.plan = replace(plan, compiled=self._fused is not None)

    def _faster(self, examples: TensorExamples, batch: list[Batch]) -> GraphedSteps | SideBySideSteps | None:
        """What makes many steps at a time, of data in memory."""
        plan, given = self.plan, (self.method, self.optimizer)
        if self._on_gpu:
            return graphed_steps(*given, plan.draws, examples, plan.batch_size, batch)
        return members_side_by_side(*given, examples, plan.batch_size, batch)

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"
