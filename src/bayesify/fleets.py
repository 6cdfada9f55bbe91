"""Many networks of one architecture trained at once, each with its own prior, learning rate, seed and KL weight.

A fleet's step is the fused step (`engines/fused.py`) with one more axis (`engines/stacked_step.py`). The objective is
mapped over the networks with `vmap`. The sum of their losses has the gradient of each network in its own row, and the
optimiser's update is elementwise. All networks see the same batches, so the first product is one large product, unless
each has its own data. Noise and start belong to each network, so a network of a fleet equals, to rounding, the network
that separate training gives.
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

from bayesify.errors import RunError, TrainingError, at_least, first_line
from bayesify.methods.variational.variational import Variational
from bayesify.runs import tensor_files
from bayesify.training import checkpoints, data_identity
from bayesify.training.batches import Examples, TensorExamples
from bayesify.training.engines.compiling import worth_compiling
from bayesify.training.engines.fused import FusedStep
from bayesify.training.engines.graphs import GraphedSteps
from bayesify.training.engines.side_by_side import SideBySideSteps
from bayesify.training.engines.stacked import Stack
from bayesify.training.engines.stacked_step import StackedStep
from bayesify.training.interrupts import deferred_interrupts
from bayesify.training.kl import KL
from bayesify.training.optimisation import make_optimizer, rate_factor
from bayesify.training.progress_bar import progress_bar
from bayesify.training.schedule import StepSchedule
from bayesify.training.users_data import as_examples

logger = logging.getLogger("bayesify")


class Fleet(Stack):
    """Variational networks of one architecture that are trained at once.

    They may differ in prior, seed, start and weights. Likelihood, architecture and settings must be the same.

    Args:
        methods: one `Variational` for each network.

    Attributes:
        methods: the networks; `fit` and `unstack` write the trained weights into them.
        parameters: the parameters of all networks, `[networks, *shape]` each.
        nll: the training NLL of each epoch and network, `[epochs][networks]`.

    Raises:
        TypeError: if a method is not `Variational`.
        ValueError: if there is no method, or they differ in more than prior, seed, start and weights.

    Examples:
        >>> from bayesify.fleets import Fleet
        >>> fleet = Fleet([bf.Variational(net, "categorical", prior=f"normal:{width}") for width in (0.5, 1, 2)])
        >>> nll = fleet.fit((x, y), learning_rates=[0.05] * 3, epochs=5, compiled=False, progress=False)
        >>> len(nll), len(nll[0])
        (5, 3)
        >>> fleet.methods[1].predict(x).probs.shape
        torch.Size([60, 3])

    """

    def __init__(self, methods: Sequence[Variational]) -> None:
        super().__init__(methods)
        self.nll: list[list[float]] = []

    def to(self, device: torch.device | str) -> Fleet:
        """Move all networks to a device.

        Args:
            device: the device.

        Returns:
            The fleet itself.

        """
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
        """Train all networks at once.

        Args:
            data: `(x, y)` in tensors or arrays; or a list of such pairs, one for each network, of equal length.
            learning_rates: one for each network.
            epochs: passes over the data.
            batch_size: examples per step.
            optimizer: `adam`, `adamw` or `sgd`, with options as in `Method.fit`.
            schedule: of the learning rates, as in `Method.fit`.
            draws: weight draws per step, the same for all networks.
            kl: weighting of the KL: one for all networks, or one for each.
            seed: seed of the order of the examples, which all networks share.
            device: where to train.
            compiled: compile the step; None compiles on a GPU, and on a CPU where it saves more time than it takes.
            precision: of the networks' products: `float32`, `tf32`, or `bfloat16` (draws and gradients too).
            run: a folder for checkpoints; training resumes from the checkpoint in it, where there is one.
            checkpoint_every: epochs between checkpoints; None writes as many as a 20th of the time allows. An interrupt
                stops training after the epoch, with a checkpoint.
            may_diverge: go on where some networks diverge, which does not affect the others.
            progress: show a progress bar.
            on_epoch: called with the number of epochs done and the NLLs of the last one.

        Returns:
            The training NLL of each epoch and network, `[epochs][networks]`.

        Raises:
            ValueError: if `learning_rates` or `data` do not fit the number of networks.
            TypeError: if the data is not in memory.
            RunError: if the folder holds a checkpoint of another fleet or of more epochs.
            TrainingError: if networks diverge (with `may_diverge`: if all do).

        """
        epochs = at_least("epochs", epochs, 1)
        pace = checkpoints.Pace(None if checkpoint_every is None else at_least("checkpoint_every", checkpoint_every, 1))
        if len(learning_rates) != len(self):
            raise ValueError(
                f"learning_rates must have one value for each of {len(self)} networks, got {len(learning_rates)}"
            )
        weightings = [KL.parse(weighting) for weighting in ([kl] * len(self) if isinstance(kl, str) else kl)]
        if device is not None:
            self.to(device)
        where = self.parameters[0].device
        first = self.methods[0]
        self.own_data = isinstance(data, list) and all(isinstance(pair, tuple) for pair in data)
        pairs = data if self.own_data else [data]
        data_sets = [as_examples(pair, first.likelihood, first.network.dtype).to(where) for pair in pairs]
        for data_set in data_sets:
            if isinstance(data_set, TensorExamples):
                first.check_examples(data_set)
        if self.own_data:
            # The tier for several draws is chosen by comparing numbers, which is not possible inside `vmap`.
            with torch.no_grad():
                first.objective([data_sets[0].first()], step=0, share=0.0, draws=draws)
        for method in self.methods:
            method.recalibration, method.guarantees = None, {}  # made for the weights before
        examples = _stacked_data(data_sets, len(self)) if self.own_data else data_sets[0]
        if not isinstance(examples, TensorExamples):
            raise TypeError("a fleet trains on data in memory: give a pair (x, y)")
        torch_optimizer = make_optimizer(optimizer, self.parameters, 1.0)
        step = StackedStep(self, torch_optimizer, draws, precision)
        self.nll = []
        request = {
            "priors": [method.prior.spec() for method in self.methods if method.prior is not None],
            "seeds": self.seeds.tolist(),
            "learning_rates": list(learning_rates),
            "kl": [str(weighting) for weighting in weightings],
            "plan": [optimizer, schedule, batch_size, draws, seed, precision],
            "examples": [examples.n_data, float(examples.y.double().sum())],
            "digest": data_identity.mark(examples)["digest"],
        }
        begun = self._restore(run, torch_optimizer, step, request)
        if begun > epochs:
            raise RunError(f"{run} holds a fleet of {begun} epochs, more than epochs={epochs}: choose another folder")
        batches = examples.count_batches(batch_size)
        graphed = self._faster(step, examples, batch_size, epochs * batches, compiled)
        counted: FusedStep = step if graphed is None else graphed.fused
        # The noise of a step is keyed by its number, and not every optimiser counts its steps.
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
            """The order of the examples in an epoch, and the numbers that its steps depend on."""

            def numbers(share: float, rate: float, number: int) -> tuple[float, ...]:
                return share, *step.rule.numbers(rate, epoch * batches + number)

            # The table first: copying the order's keys to the device waits for the steps that are under way.
            table = step_schedule.table(epoch, numbers, self.parameters[0].dtype)
            return examples.orders(seed, epoch, 1, where), table

        bar = progress_bar(total=epochs, initial=begun, unit="epoch", show=progress)
        with bar, deferred_interrupts() as interrupted:
            ahead = prepared(min(begun, epochs - 1))
            for epoch in range(begun, epochs):
                total = self._begin_epoch(counted, examples, *ahead, step_schedule.sizes, graphed)
                if epoch + 1 < epochs:
                    # Prepare the next epoch while the device is still at work.
                    ahead = prepared(epoch + 1)
                self.nll.append(((graphed.nll if graphed is not None else total) / examples.n_data).tolist())
                counted.record()
                diverged = self.diverged
                if diverged and not (may_diverge and len(diverged) < len(self)):
                    raise TrainingError(f"networks {diverged[:10]} of the fleet diverged: lower their learning rates")
                last, stopped = epoch + 1 == epochs, interrupted()
                if last or stopped or pace.due(epoch + 1):
                    with pace.writing():
                        self._save(run, torch_optimizer, epoch + 1, request)
                on_epoch(epoch + 1, self.nll[-1])
                bar.update()
                if stopped and not last:
                    raise KeyboardInterrupt
        self.unstack()
        return self.nll

    def unstack(self) -> list[Variational]:
        """Write the weights of the stack into the networks.

        Returns:
            The networks, in evaluation mode.

        """
        for index, method in enumerate(self.methods):
            method.to(self.parameters[0].device)
            for name, parameter in method.named_parameters():
                row = self.parameters[self.names.index(name)]
                with torch.no_grad():
                    parameter.copy_(row[index])
            method.input_shapes = self.methods[0].input_shapes
            method.input_names = self.methods[0].input_names
            method.eval()
        return self.methods

    def _faster(
        self, step: StackedStep, examples: TensorExamples, batch_size: int, steps: int, compiled: bool | None
    ) -> GraphedSteps | SideBySideSteps | None:
        """Compile the step where requested or faster; return what makes the steps of an epoch, if not Python."""
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
        """Make the steps of an epoch and return the sum of their NLLs; `graphed` has that sum itself."""
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
        """Numbers of the networks whose parameters are not all finite."""
        # Reshaped, not flattened: a scalar of the likelihood has only the axis of networks.
        rows = [torch.isfinite(parameter).reshape(len(self), -1).all(1) for parameter in self.parameters]
        finite = torch.stack(rows).all(0)
        return [number for number, good in enumerate(finite.tolist()) if not good]

    def _save(
        self, run: str | Path | None, optimizer: torch.optim.Optimizer, epochs: int, request: dict[str, Any]
    ) -> None:
        if run is None:
            return
        tensors, packed = checkpoints.pack_optimizer(optimizer)
        tensors |= dict(zip(self.names, (parameter.detach() for parameter in self.parameters), strict=True))
        state = {"epochs": epochs, "optimizer": packed, "nll": self.nll, "asked": request}
        tensor_files.write(Path(run) / "fleet.safetensors", tensors, state)

    def _restore(
        self, run: str | Path | None, optimizer: torch.optim.Optimizer, step: StackedStep, request: dict[str, Any]
    ) -> int:
        file = None if run is None else Path(run) / "fleet.safetensors"
        if file is None or not file.exists():
            return 0
        tensors, state = tensor_files.read(file)
        requested, saved = json.loads(json.dumps(request)), state.get("asked")
        # Checkpoints of earlier versions lack some entries, which are not compared.
        if (
            saved is None
            or {**requested, **saved} != requested
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


def _stacked_data(data_sets: Sequence[Examples], networks: int) -> TensorExamples:
    """The data of each network as one data set: the networks are the second axis, `[n, networks, ...]`."""
    in_memory = [data_set for data_set in data_sets if isinstance(data_set, TensorExamples)]
    sizes = sorted({data_set.n_data for data_set in in_memory})
    if len(in_memory) != networks or len(sizes) != 1:
        raise ValueError(
            f"a list of data must have a pair (x, y) of equal length for each of {networks} networks, "
            f"got {len(in_memory)} of {' and '.join(map(str, sizes)) or 'no'} examples"
        )
    x = pytree.tree_map(lambda *leaves: torch.stack(leaves, 1), *(data_set.x for data_set in in_memory))
    return TensorExamples(x, torch.stack([data_set.y for data_set in in_memory], 1))
