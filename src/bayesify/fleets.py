"""Many networks of one architecture trained at once, each with its own prior, learning rate, seed and KL weight.

A fleet's step is the fused step (`step.py`) with one more axis: the objective is mapped over the networks (`vmap`), the
sum of their losses has each network's gradient in its own row, and the optimiser's update is elementwise already. All
see the same batches, so that the first product is one large one, unless each is given data of its own; noise, start and
everything else are each one's own, so a network of a fleet is, to rounding, the network that training it alone would
have given.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from tqdm import tqdm

from bayesify.errors import RunError, TrainingError, at_least, first_line
from bayesify.methods.variational.variational import Variational
from bayesify.runs import checkpoint
from bayesify.training import checkpoints, data_identity
from bayesify.training.engines.compiling import worth_compiling
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.side_by_side import SideBySideSteps
from bayesify.training.engines.stacked import Stack
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.examples import Examples, TensorExamples, as_examples
from bayesify.training.interrupts import deferred_interrupts
from bayesify.training.kl import KL
from bayesify.training.optimisation import make_optimizer, rate_factor
from bayesify.training.schedule import StepSchedule

logger = logging.getLogger("bayesify")


class Fleet(Stack):
    """Variational networks that differ in prior, seed, start and weights, and in nothing else."""

    def __init__(self, methods: Sequence[Variational]) -> None:
        super().__init__(methods)
        self.nll: list[list[float]] = []

    def to(self, device: torch.device | str) -> Fleet:
        """Move everything."""
        self.parameters = [nn.Parameter(parameter.detach().to(device)) for parameter in self.parameters]
        self.methods[0].to(device)
        self.numbers, self.seeds = self.numbers.to(self.parameters[0]), self.seeds.to(device)
        return self

    def fit(
        self,
        data: Any,
        *,
        learning_rates: Sequence[float],
        epochs: int = 10,
        batch_size: int = 128,
        optimizer: str = "adam",
        schedule: str = "constant",
        draws: int = 1,
        kl: str | Sequence[str] = "uniform",
        seed: int = 0,
        device: torch.device | str | None = None,
        compiled: bool | None = None,
        precision: str = "float32",
        run: str | Path | None = None,
        checkpoint_every: int | None = None,
        may_diverge: bool = False,
        progress: bool = True,
        on_epoch: Callable[[int, list[float]], None] = lambda _, __: None,
    ) -> list[list[float]]:
        """Train all; each epoch's training NLL by network, `[epochs][networks]`.

        Args:
            data: `(x, y)` in tensors or arrays; or a list of such pairs, one for each network, equally long.
            learning_rates: one for each network.
            epochs: passes over the data.
            batch_size: examples per step.
            optimizer: `adam`, `adamw`, `sgd` and their options.
            schedule: as in `Method.fit`.
            draws: weight draws per step, for all: networks with other draws go into a fleet of their own.
            kl: one for all or one for each network.
            seed: of the order of the examples, which all share.
            device: where to train.
            compiled: compile the step; None does on a GPU, and on a CPU where it saves more time than it takes.
            precision: of the networks' products: `float32`, `tf32`, or `bfloat16` (draws and gradients too).
            run: a folder for checkpoints; one that is there is gone on from.
            checkpoint_every: epochs between checkpoints; None has as many as a 20th of the time allows, and one when it
                is interrupted, which it is between two epochs.
            may_diverge: go on where some networks stop being finite; the others are not touched by it.
            progress: show a bar.
            on_epoch: called with the number of epochs done and their last NLLs.

        """
        at_least("epochs", epochs, 1)
        pace = checkpoints.Pace(None if checkpoint_every is None else at_least("checkpoint_every", checkpoint_every, 1))
        if len(learning_rates) != len(self):
            raise ValueError(
                f"learning_rates must have one for each of {len(self)} networks, got {len(learning_rates)}"
            )
        weightings = [KL.parse(one) for one in ([kl] * len(self) if isinstance(kl, str) else kl)]
        if device is not None:
            self.to(device)
        where = self.parameters[0].device
        first = self.methods[0]
        self.own_data = isinstance(data, list) and all(isinstance(one, tuple) for one in data)
        given = data if self.own_data else [data]
        every = [as_examples(one, first.likelihood, first.network.dtype).to(where) for one in given]
        for one in every:
            if isinstance(one, TensorExamples):
                first.check_examples(one)
        if self.own_data:
            # How draws are batched is found by comparing numbers, which cannot be done inside the map over networks.
            with torch.no_grad():
                first.objective([every[0].first()], step=0, share=0.0, draws=draws)
        examples = _together(every, len(self)) if self.own_data else every[0]
        if not isinstance(examples, TensorExamples):
            raise TypeError("a fleet trains on data in memory: give a pair (x, y)")
        made = make_optimizer(optimizer, self.parameters, 1.0)
        step = StackedStep(self, made, draws, precision)
        self.nll = []
        asked = {
            "priors": [method.prior.spec() for method in self.methods if method.prior is not None],
            "seeds": self.seeds.tolist(),
            "learning_rates": list(learning_rates),
            "kl": [str(weighting) for weighting in weightings],
            "plan": [optimizer, schedule, batch_size, draws, seed, precision],
            "examples": [examples.n_data, float(examples.y.double().sum())],
            "digest": data_identity.mark(examples)["digest"],
        }
        begun = self._restore(run, made, step, asked)
        if begun > epochs:
            raise RunError(f"{run} holds a fleet of {begun} epochs, more than epochs={epochs}: choose another folder")
        batches = examples.count_batches(batch_size)
        graphed = self._faster(step, examples, batch_size, epochs * batches, compiled)
        counted: FusedStep = step if graphed is None else graphed.fused
        # Not every optimiser counts its steps; the noise of a step is keyed by its number.
        counted.done = begun * batches
        step_schedule = StepSchedule(
            list(zip(weightings, learning_rates, strict=True)),
            lambda done: rate_factor(schedule, done),
            epochs=epochs,
            batches=batches,
            batch_size=batch_size,
            n_data=examples.n_data,
        )

        def prepared(epoch: int) -> tuple[Tensor, Tensor]:
            """An epoch's order, and what its steps depend on."""

            def numbers(share: float, rate: float, number: int) -> tuple[float, ...]:
                return share, *step.rule.numbers(rate, epoch * batches + number)

            # The table first: the order's keys are copied to the device, which waits for the steps that are under way.
            table = step_schedule.table(epoch, numbers, self.parameters[0].dtype)
            return examples.orders(seed, epoch, 1, where), table

        bar = tqdm(total=epochs, initial=begun, unit="epoch", disable=None if progress else True, leave=False)
        with bar, deferred_interrupts() as interrupted:
            ahead = prepared(min(begun, epochs - 1))
            for epoch in range(begun, epochs):
                total = self._begin_epoch(counted, examples, *ahead, step_schedule.sizes, graphed)
                if epoch + 1 < epochs:
                    # A device is still at work: time for what the next epoch needs.
                    ahead = prepared(epoch + 1)
                self.nll.append(((graphed.nll if graphed is not None else total) / examples.n_data).tolist())
                counted.record()
                gone = self.diverged
                if gone and not (may_diverge and len(gone) < len(self)):
                    raise TrainingError(
                        f"networks {gone[:10]} of the fleet stopped being finite: lower their learning rates"
                    )
                last, stopped = epoch + 1 == epochs, interrupted()
                if last or stopped or pace.due(epoch + 1):
                    with pace.writing():
                        self._keep(run, made, epoch + 1, asked)
                on_epoch(epoch + 1, self.nll[-1])
                bar.update()
                if stopped and not last:
                    raise KeyboardInterrupt
        self.unstack()
        return self.nll

    def unstack(self) -> list[Variational]:
        """The networks, each with its own weights."""
        for index, method in enumerate(self.methods):
            method.to(self.parameters[0].device)
            for name, parameter in method.named_parameters():
                row = self.parameters[self.names.index(name)]
                parameter.data = row.detach()[index].clone()
            method.input_shapes = self.methods[0].input_shapes
            method.input_names = self.methods[0].input_names
            method.eval()
        return self.methods

    def _faster(
        self, step: StackedStep, examples: TensorExamples, batch_size: int, steps: int, compiled: bool | None
    ) -> GraphedSteps | SideBySideSteps | None:
        """Compile the step where that was asked for or pays; what then makes an epoch's steps, if not Python."""
        where = self.parameters[0].device
        weights = step.method.network.size * step.draws * len(self)
        if not (compiled or (compiled is None and (where.type == "cuda" or worth_compiling(weights, steps, where)))):
            return None
        try:
            return step.faster(examples, batch_size)
        except Exception as problem:
            if compiled or where.type == "cuda":
                raise
            logger.warning("the fleet's step is not compiled (%s): the plain path is used", first_line(problem)[:160])
            return None

    def _begin_epoch(
        self,
        step: FusedStep,
        examples: TensorExamples,
        order: Tensor,
        numbers: Tensor,
        sizes: list[int],
        graphed: GraphedSteps | SideBySideSteps | None,
    ) -> Tensor:
        """Make an epoch's steps and sum their NLLs up; or have `graphed` make them, which has the sum in the end."""
        total = torch.zeros(len(self), dtype=torch.float64, device=order.device)
        if graphed is not None:
            graphed.begin(order, numbers, step.done, 0)
            for size in sizes:
                graphed.step(size)
            return total
        numbers, start = numbers.to(order.device), 0
        for row, size in zip(numbers, sizes, strict=True):
            batch = examples.fetch(order[0, start : start + size])
            leaves, layout = pytree.tree_flatten([batch])
            now = torch.tensor(step.done, device=order.device)
            total += step.evaluate(layout, leaves, now, row).double() * size
            step.done += 1
            start += size
        return total

    @property
    def diverged(self) -> list[int]:
        """The networks that have stopped being finite."""
        # Reshaped, not flattened: a number that a likelihood learns has no axis besides the networks'.
        rows = [torch.isfinite(parameter).reshape(len(self), -1).all(1) for parameter in self.parameters]
        finite = torch.stack(rows).all(0)
        return [number for number, good in enumerate(finite.tolist()) if not good]

    def _keep(
        self, run: str | Path | None, optimizer: torch.optim.Optimizer, epochs: int, asked: dict[str, Any]
    ) -> None:
        if run is None:
            return
        tensors, packed = checkpoints.pack_optimizer(optimizer)
        tensors |= dict(zip(self.names, (parameter.detach() for parameter in self.parameters), strict=True))
        state = {"epochs": epochs, "optimizer": packed, "nll": self.nll, "asked": asked}
        checkpoint.write(Path(run) / "fleet.safetensors", tensors, state)

    def _restore(
        self, run: str | Path | None, optimizer: torch.optim.Optimizer, step: StackedStep, asked: dict[str, Any]
    ) -> int:
        file = None if run is None else Path(run) / "fleet.safetensors"
        if file is None or not file.exists():
            return 0
        tensors, state = checkpoint.read(file)
        told, held = json.loads(json.dumps(asked)), state.get("asked")
        # A fleet of an earlier version does not tell its data apart by more than its targets.
        if (
            held is None
            or {**told, **held} != told
            or any(
                tensors[name].shape != parameter.shape
                for name, parameter in zip(self.names, self.parameters, strict=True)
            )
        ):
            raise RunError(f"{file} was written by another fleet: choose another folder")
        with torch.no_grad():
            for name, parameter in zip(self.names, self.parameters, strict=True):
                parameter.copy_(tensors[name])
        checkpoints.unpack_optimizer(optimizer, tensors, state["optimizer"])
        step.bind(optimizer)
        self.nll = state["nll"]
        return int(state["epochs"])


def _together(every: Sequence[Examples], networks: int) -> TensorExamples:
    """Each network's own data as one: the networks are the axis after the examples, `[n, networks, ...]`."""
    kept = [one for one in every if isinstance(one, TensorExamples)]
    sizes = sorted({one.n_data for one in kept})
    if len(kept) != networks or len(sizes) != 1:
        raise ValueError(
            f"data of their own must be a pair (x, y) for each of {networks} networks, equally long, "
            f"got {len(kept)} of {' and '.join(map(str, sizes)) or 'no'} examples"
        )
    x = pytree.tree_map(lambda *leaves: torch.stack(leaves, 1), *(one.x for one in kept))
    return TensorExamples(x, torch.stack([one.y for one in kept], 1))
