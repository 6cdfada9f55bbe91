"""The steps of an epoch, made in the fastest way that works.

    replays        of a captured graph, with the data on the GPU (`graphs.py`, `staged_step.py`) or with batches that
                   are copied there (`batch_graphs.py`)
    side by side   the networks of an ensemble on the cores of a CPU (`side_by_side.py`)
    fused          compiled as one function (`fused.py`)
    plain          autograd and torch's optimiser, for what cannot be captured or is not worth compiling

The choice is made at the first step and written into the plan.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.distributed import active
from bayesify.training.augmentation import augmented
from bayesify.training.batches import Batch, Examples, IndexedExamples, TensorExamples, to_device
from bayesify.training.engines.batch_graphs import BatchGraphs, batch_graphs
from bayesify.training.engines.compiling import worth_compiling
from bayesify.training.engines.data_parallel import same_batches
from bayesify.training.engines.fused import FusedStep, fused_step
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.member_streams import member_streams
from bayesify.training.engines.plain import plain_step
from bayesify.training.engines.side_by_side import SideBySideSteps, members_side_by_side
from bayesify.training.engines.single import graphed_steps
from bayesify.training.layer_rates import LayerRates
from bayesify.training.plan import Plan, Progress
from bayesify.training.recovery import GradientMemoryError, empty_cache, splits
from bayesify.training.schedule import StepSchedule
from bayesify.training.trainable import declares

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.trainable import Trainable


logger = logging.getLogger("bayesify")


class Engine:
    """Makes the training steps of one method.

    Args:
        method: the method in training.
        examples: the training data.
        plan: the plan of the training.
        optimizer: the method's optimiser.
        step_schedule: learning rate and share of the KL of each step.
        augment: changes the inputs of each batch; None leaves them as they are.
        watched: whether somebody looks at the method after every step: then no step is made ahead of others.

    """

    def __init__(
        self,
        method: Trainable,
        examples: Examples,
        plan: Plan,
        optimizer: Optimizer,
        step_schedule: StepSchedule,
        *,
        augment: Callable[[Any], Any] | None = None,
        watched: bool = False,
    ) -> None:
        self._augment, self._watched = augment, watched
        self.method, self.examples, self.plan, self.optimizer = method, examples, plan, optimizer
        self.step_schedule = step_schedule
        self._layer_rates = LayerRates(method, plan.rates) if plan.rates else None
        self._rates: list[float] = [group["lr"] for group in optimizer.param_groups]
        self._device = next(method.parameters()).device
        self._decided = False
        self._fused: FusedStep | None = None
        self._replayed: BatchGraphs | None = None
        self._graphed: GraphedSteps | SideBySideSteps | None = None
        self._ahead: tuple[Tensor, Tensor] | None = None  # order and numbers of the epoch to come

    def epoch(self, epoch: int, skip: int, progress: Progress, tell: Callable[[str | None], None]) -> Iterator[None]:
        """Make the steps of an epoch, one for each `next`; the caller counts them in `progress.step`.

        Args:
            epoch: number of the epoch, counted from zero.
            skip: batches of it that were made before.
            progress: where training is; examples seen and the sum of their NLLs are added to it.
            tell: called with a reason while the first step takes long, then with None.

        """
        plan, members, group = self.plan, self.method.members, active()
        total = torch.tensor(progress.nll_sum, dtype=torch.float64, device=self._device)
        # With augmentation the first whole batch decides, so that the function is called once a step.
        early = self._augment is None or skip == self.step_schedule.batches - 1
        if not self._decided and early and isinstance(self.examples, IndexedExamples):
            leading = torch.arange(min(plan.batch_size, self.examples.n_data))
            first = [to_device(self.examples.fetch(leading), self._device)] * members
            if self._augment is not None:
                first = augmented(first, self._augment, plan.seed, progress.step)
            self._fuse(first, tell)
        try:
            if self._graphed is not None:
                yield from self._replays(self._graphed, epoch, skip, progress, total)
                return
            batches = self.examples.batches(plan.batch_size, plan.seed, epoch, members, skip)
            for batch in itertools.islice(batches, self.step_schedule.batches - skip):
                if group is not None:
                    same_batches(group, self.examples, batch)
                on_device = [to_device(member_batch, self._device) for member_batch in batch]
                if self._augment is not None:
                    on_device = augmented(on_device, self._augment, plan.seed, progress.step)
                size = on_device[0][1].shape[0]
                if not self._decided:
                    self._fuse(on_device, tell)
                # Weighted by size, so that the epoch's mean is the mean over examples, also with a smaller last batch.
                total += self._step(on_device, progress.step, size).double() * size
                progress.seen += size
                yield
        finally:
            progress.nll_sum = float(total)

    def record(self) -> None:
        """Tell the optimiser how many steps were made, so that it can go on from there."""
        if self._fused is not None:
            self._fused.record()

    def _step(self, batch: list[Batch], step: int, size: int) -> Tensor:
        method, share, rate = self.method, self.step_schedule.share(step, size), self._set_rates(step)
        run = self._replayed or self._fused
        if run is not None:
            nll = run(batch, step, share, rate)
            method.made_step(step)
            return nll
        while True:
            try:
                return plain_step(method, self.optimizer, self.plan, batch, step, share, self._layer_rates)
            except GradientMemoryError as problem:
                if not self._split(size):
                    raise (problem.__cause__ or problem) from None
            # Only here, without the error and what its frames hold, is the memory free.
            empty_cache(self._device)

    def _split(self, size: int) -> bool:
        """Compute the gradients of this and all later steps in twice as many parts; whether that is possible."""
        parts = 2 * self.plan.accumulate
        if parts > size or not splits(self.plan.batch_size, parts, self.method):
            return False
        self.plan = self.method.plan = replace(self.plan, accumulate=parts)
        return True

    def _replays(
        self, graphed: GraphedSteps | SideBySideSteps, epoch: int, skip: int, progress: Progress, total: Tensor
    ) -> Iterator[None]:
        batches = self.step_schedule.batches
        ahead, self._ahead = self._ahead, None
        order, numbers = self._prepared(graphed, epoch, skip) if ahead is None or skip else ahead
        graphed.begin(order, numbers, epoch * batches, skip)
        self._set_rates((epoch + 1) * batches - 1)
        try:
            for number, size in enumerate(self.step_schedule.sizes[skip:], epoch * batches + skip):
                graphed.step(size)
                self.method.made_step(number)
                progress.seen += size
                yield
            if epoch + 1 < self.plan.epochs:
                # Prepare the next epoch while the device is still at work.
                self._ahead = self._prepared(graphed, epoch + 1, 0)
        finally:
            total += graphed.nll.sum()

    def _prepared(self, graphed: GraphedSteps | SideBySideSteps, epoch: int, skip: int) -> tuple[Tensor, Tensor]:
        """The order of the examples in an epoch, and the numbers that its steps depend on."""
        assert isinstance(self.examples, TensorExamples)
        fused = graphed.fused

        def numbers(share: float, rate: float, number: int) -> tuple[float, ...]:
            return fused.numbers(share, rate, ahead=number - skip)

        # The table first: copying the order's keys to the device waits for the steps that are under way.
        table = self.step_schedule.table(epoch, numbers, fused.state[0].dtype)[:, 0]
        return self.examples.orders(self.plan.seed, epoch, self.method.members, self._device), table

    def _set_rates(self, step: int) -> float:
        """Set the optimiser's learning rates for this step, which the history records; return the first of them."""
        factor = self.step_schedule.factor(step)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        return self._rates[0] * factor

    def _fuse(self, batch: list[Batch], tell: Callable[[str | None], None]) -> None:
        """Decide how the steps are made."""
        plan, method, self._decided = self.plan, self.method, True
        wanted = plan.compiled
        if wanted is None:
            size, tensors = method.network.size * plan.draws, len(method.network.places)
            able = declares(method, "capturable") and method.fusible
            wanted = able and worth_compiling(size, self.step_schedule.steps, self._device, tensors)
        if wanted and active() is not None:
            if plan.compiled:
                logger.warning("the step is not fused: gradients are exchanged between the processes after each pass")
            wanted = False
        if wanted and (plan.accumulate > 1 or plan.clip_norm is not None or plan.recompute or plan.rates):
            if plan.compiled:
                logger.warning("the step is not fused (accumulate=, clip_norm=, rates= and recompute= are plain)")
            wanted = False
        if wanted and method.network.traced(batch[0][0]).checkpoints:
            if plan.compiled:
                logger.warning("the step is not fused: the network makes activation checkpoints")
            wanted = False
        if wanted:
            tell("compiling the step, once")
            by_number = isinstance(self.examples, TensorExamples) and self._augment is None
            in_memory = self.examples if isinstance(self.examples, TensorExamples) and by_number else None
            if in_memory is not None:
                self._graphed = self._faster(in_memory, batch)
            if self._graphed is not None:
                self._fused = self._graphed.fused
            elif in_memory is None or not self._on_gpu:  # on a GPU, `_faster` has tried to fuse the step
                members = member_streams(method, self.optimizer, batch) if self._on_gpu else None
                self._fused = members or fused_step(method, self.optimizer, plan.draws, batch)
                if self._fused is not None and self._on_gpu:
                    self._replayed = batch_graphs(self._fused, batch)
            tell(None)
        self.plan = method.plan = replace(plan, compiled=self._fused is not None)

    def _faster(self, examples: TensorExamples, batch: list[Batch]) -> GraphedSteps | SideBySideSteps | None:
        """Replays on a GPU or members side by side, for data in memory; None where neither works."""
        plan, method, optimizer = self.plan, self.method, self.optimizer
        if self._on_gpu:
            return graphed_steps(method, optimizer, plan.draws, examples, plan.batch_size, batch)
        return None if self._watched else members_side_by_side(method, optimizer, examples, plan.batch_size, batch)

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"
