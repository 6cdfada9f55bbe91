"""Fitting: how a method is trained, by `fit` and `resume` or by a training loop of one's own, and what follows.

    read the data -> `_begin` -> the steps of the plan -> `_conclude` -> check the fit -> write the run

`training/` has the loop. A run that was interrupted ends with the bits of one that was not.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch.optim import Optimizer

from bayesify import runs
from bayesify.distributed import Group, active
from bayesify.errors import TrainingError, at_least, first_line
from bayesify.functional.recomputing import modules_to_recompute
from bayesify.methods import saving
from bayesify.methods.after_fit import Checked, examine
from bayesify.methods.arguments import explained_arguments
from bayesify.methods.before_fit import look_at
from bayesify.methods.checks import check_last_batch, check_precision, few, names_of, shapes_of
from bayesify.methods.elbo import ELBO
from bayesify.methods.objective import Objective
from bayesify.methods.over_processes import (
    as_the_run,
    claimed,
    first_only,
    goes_on,
    in_parts,
    over_processes,
    start_alike,
)
from bayesify.methods.sharded import Shardable
from bayesify.methods.usual_plan import usual_epochs, usual_plan
from bayesify.training import data_identity
from bayesify.training.batches import CountedExamples, Examples, TensorExamples, all_targets
from bayesify.training.kl import KL
from bayesify.training.loop import CUSTOM, History, Plan, Schedule, Trainer, extended, make_plan
from bayesify.training.optimisation import OptimizerFactory, make_optimizer
from bayesify.training.sharded_checkpoints import read_parts
from bayesify.training.users_data import as_examples, for_scoring
from bayesify.training.warnings import warn

__all__ = ["Fitting"]


class Fitting(Shardable):
    """A module that can be trained: `fit`, `resume`, and `loop_optimizer` and `finish` for a loop of one's own."""

    name: ClassVar[str]
    plan_type: ClassVar[type[Any]] = Plan
    # Whether a training step is a function of tensors alone, which can be traced and compiled.
    capturable: ClassVar[bool] = False
    # Whether its members share nothing, so that they can be trained in parallel.
    independent_members: ClassVar[bool] = False
    # Whether several of its networks can be stacked along one axis and trained as one (`fleets`).
    stackable: ClassVar[bool] = False
    # Whether a training step may average over several draws of the weights.
    draws_per_step: ClassVar[bool] = False
    # Whether its loss is an ELBO: an expected negative log-likelihood plus a KL.
    has_elbo: ClassVar[bool] = False
    # Why a loop of one's own has to be given a learning rate; empty where 0.001 will do.
    rate_of_loops: ClassVar[str] = ""
    # The guarantees made for these weights, as plain JSON; other weights have none.
    guarantees: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan | None = None
        # When training has to end, by `time.perf_counter()`; None lets it follow its plan to the end.
        self.deadline: float | None = None
        self.run: Path | None = None
        self.complete = True
        self.history = History(method=self.name)
        # Why the last fit should not be trusted: sentences by kind.
        self.warnings: dict[str, str] = {}
        # The numbers behind the warnings; None before the first fit.
        self.checked: Checked | None = None
        # Warnings about the network and the data, given before training.
        self._before_fit: dict[str, str] = {}
        # The ELBO at the end of the last fit, on at most 1,000 examples; None for methods without one.
        self.final_elbo: ELBO | None = None
        # Whether `fit` is at work.
        self._under_way = False

    # What it needs of the rest of a method.

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor arguments beyond the shared ones, as JSON values."""

    @abstractmethod
    def save(self, path: str | Path, *, base: bool = True) -> Path:
        """Write the method to a run folder.

        Args:
            path: the folder.
            base: write the frozen weights of the network too.

        Returns:
            The folder.

        """

    # What a method may override.

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """The optimiser that `fit` uses; a method with an update rule returns that rule here.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch.

        Returns:
            A torch optimiser over the method's parameters.

        """
        made = make_optimizer(optimizer, self.parameters(), learning_rate)
        decay = max(float(group.get("weight_decay", 0.0)) for group in made.param_groups)
        if decay and self.prior is not None:
            widths = " and pulls the widths of the posterior towards 0.69" if self.has_elbo else ""
            warn(
                f"the optimizer has a weight_decay of {decay:g} beside the prior: it shrinks the weights a second "
                f"time{widths}; set it to 0, as in optimizer='adamw:weight_decay=0'"
            )
        return made

    def choose_optimizer(
        self, optimizer: str | OptimizerFactory | None, learning_rate: float | None, kl: str
    ) -> tuple[str | OptimizerFactory, float | None]:
        """The optimiser and the learning rate of `fit`, where it was given only some of them.

        Args:
            optimizer: as `fit` takes it.
            learning_rate: as `fit` takes it.
            kl: the weighting of the KL, in its text form.

        Returns:
            Both: `adam` and 0.001 unless they are given or the method has its own.

        """
        return "adam" if optimizer is None else optimizer, 1e-3 if learning_rate is None else learning_rate

    def own_checks(self, x: Any) -> dict[str, str | None]:
        """Warnings after a fit that only this method can give, by kind; None where there is nothing to warn about.

        Args:
            x: at most 1,000 inputs of the validation data, or of the training data.

        """
        return {}

    def _begin(self, plan: Plan, examples: Examples) -> None:
        if plan.draws > 1 and not self.draws_per_step:
            raise ValueError(f"{self.name} does not draw weights in a step: draws must be 1, got {plan.draws}")
        self.plan = plan
        self.seed = plan.seed
        self._loop_data, self._loop_temperature = None, 1.0

    def _begin_loop(self, plan: Plan, examples: Examples) -> None:
        """Prepare for a training loop of the user's; the examples have a number and nothing else."""
        self._begin(plan, examples)

    def _before_finish(self, examples: Examples) -> None:
        """Refuse to finish a loop that did not collect what the method needs."""

    def _conclude(self, examples: Examples) -> None:
        """Compute what needs the trained weights and the data: a curvature, running statistics."""

    def _end(self) -> None:
        """Release what only training needs; called at the end even where training fails."""

    # What users call.

    @explained_arguments
    @over_processes
    @runs.holds_locks
    def fit(
        self,
        data: Any,
        *,
        epochs: int | None = None,
        batch_size: int = 128,
        optimizer: str | OptimizerFactory | None = None,
        learning_rate: float | None = None,
        schedule: Schedule | None = None,
        draws: int = 1,
        kl: str | KL = "uniform",
        validation: Any = None,
        patience: int | None = None,
        keep: str = "last",
        seed: int = 0,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        compiled: bool | None = None,
        progress: bool = True,
        run: str | Path | None = None,
        overwrite: bool = False,
        checkpoint_every: int = 1,
        validation_draws: int = 10,
        precision: str = "full",
        accumulate: int = 1,
        clip_norm: float | None = None,
        ema: float | None = None,
        augment: Callable[[Any], Any] | None = None,
        rates: Mapping[str, float] | None = None,
        recompute: Sequence[str] = (),
        on_nan: str = "stop",
        callbacks: Sequence[Any] = (),
        distributed: bool | str = True,
    ) -> History:
        """Train on data.

        Each step minimises, for a batch of B of N examples,

            loss = mean negative log-likelihood of the batch + KL / N

        with `kl="uniform"`; `KL` has the other weightings. Point methods have minus the log prior in place of the KL.

        Args:
            data: `(x, y)` in tensors or arrays, a `Dataset` or a `DataLoader`; x may be any pytree.
            epochs: passes over the data. None is as on the command line: at least 10, and enough for 2,000 steps (6,000
                for a number to predict from 5,000 rows or more). It is 10 where the number of examples is not known.
            batch_size: examples per step; a loader has its own.
            optimizer: the name of a torch optimiser (`adam`, `sgd:momentum=0.9`), or a function
                `(parameters, lr=) -> Optimizer`. None is the method's own where no learning rate is given either:
                `natural` for a full-rank variational posterior over at most 128 variables. Otherwise it is `adam`.
            learning_rate: of the mean loss over a batch. None is the method's default for the kind of problem, as on
                the command line: 0.01 for rows of numbers in memory, 0.001 for other inputs and for networks of more
                than 100,000 weights; with `optimizer=` it is 0.001.
            schedule: `constant`, `cosine`, `linear` or `step:0.5,0.1`, each also with `,warm-up=0.05`; a function of
                the share of steps done; or a function that makes a torch scheduler for an optimiser. None is the
                method's default where neither rate nor optimiser is given (`cosine` for rows of numbers), or
                `constant`.
            draws: weight draws per step.
            kl: `uniform` or `reweighted`, with `warm-up=` epochs and `temperature=`; see `KL`.
            validation: data like `data`, scored after every epoch.
            patience: stop after this many epochs without a better validation NLL.
            keep: the `last` state, or the one that is `best` on validation.
            seed: of the noise and the order of the batches.
            n_data: the number of examples, where a loader has no length.
            device: where to train; the method is moved there.
            compiled: compile the training step; None decides by the size of the work.
            progress: show a bar (never when the output is not a terminal).
            run: a folder for checkpoints, history and the result.
            overwrite: allow a run folder that already holds a run.
            checkpoint_every: epochs between checkpoints.
            validation_draws: draws for each validation score.
            precision: of the training passes: `full`, that of the weights, or `bfloat16` by autocast. Weights, widths,
                moments and the KL stay in the precision of the weights.
            accumulate: compute the gradient of each step in this many parts, with the same result in less memory.
                Batch normalisation sees the parts.
            clip_norm: scale a step's gradient down to this norm where it is larger; each member of an ensemble has its
                own norm.
            ema: keep an exponential moving average of the weights with this decay, such as 0.999.
            augment: a function that changes the inputs of each batch, such as a torchvision transform. The number of
                examples stays that of the data.
            rates: factors of the learning rate by layer, such as `{"encoder.*": 0.1, "biases": 0.0}`: name patterns or
                the words of `bayesian=`, later ones replace earlier ones.
            recompute: patterns of modules, such as `["blocks.*"]`, whose activations are computed again in the backward
                pass instead of being kept: less memory, more time, the same result.
            on_nan: where the loss stops being finite, `stop` with the last good state, or `rollback`: go on from the
                last good epoch, or from the start where that did not help, with half the learning rate. After ten
                rollbacks training stops.
            callbacks: objects with some of the methods of `bf.callbacks.Callback`.
            distributed: whether the processes that `torchrun` started train together, with the result of one process;
                `own-draws` lets each of them draw its own weights, for less variance; `sharded` lets each of them hold
                a part of the weights, widths and moments, for networks that do not fit one device; and
                `sharded-own-draws` does both. Without `torchrun` it has no effect.

        Returns:
            The history: one record per epoch, columns by name (`history["nll"]`).

        Raises:
            ValueError: data, network and likelihood do not fit together, or a setting is out of range.
            TrainingError: training diverged. The method is left as it was after the last good epoch.

        Examples:
            >>> point = bf.PointEstimate(net, "categorical")
            >>> history = point.fit((x, y), epochs=10, learning_rate=0.05, progress=False)
            >>> len(history), history["nll"][-1] < history["nll"][0]
            (10, True)

        """
        if not isinstance(rates, Mapping | None):
            raise TypeError(f"rates must be factors by layer, such as {{'encoder.*': 0.1}}, got {rates!r}")
        chosen, rate = self.choose_optimizer(optimizer, learning_rate, str(KL.parse(kl)))
        if optimizer is None and learning_rate is None and chosen == "adam":
            rate, usual = usual_plan(self, data)
            schedule = usual if schedule is None else schedule
        optimizer, learning_rate, schedule = chosen, rate, schedule or "constant"
        plan, own_optimizer, own_schedule = make_plan(
            optimizer,
            schedule,
            kl,
            {
                "epochs": usual_epochs(self, data, batch_size) if epochs is None else epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "draws": draws,
                "seed": seed,
                "patience": patience,
                "keep": keep,
                "validation_draws": validation_draws,
                "checkpoint_every": checkpoint_every,
                "compiled": compiled,
                "precision": precision,
                "accumulate": accumulate,
                "clip_norm": clip_norm,
                "ema": ema,
                "augment": None if augment is None else CUSTOM,
                "rates": None if rates is None else dict(rates),
                "recompute": list(recompute) if modules_to_recompute(self.network.template, recompute) else None,
                "on_nan": on_nan,
            },
        )
        if goes_on(run, plan):
            assert run is not None
            return self.resume(
                data,
                run,
                validation=validation,
                optimizer=own_optimizer,
                schedule=own_schedule,
                n_data=n_data,
                device=device,
                progress=progress,
                augment=augment,
                callbacks=callbacks,
                distributed=distributed,
            )
        before = self.history["kl"]
        folder = claimed(run, overwrite=overwrite)
        parts = in_parts(self, plan)
        examples, checks = self._read(data, validation, n_data, device if parts is None else None)
        start_alike(self, examples, plan)
        check_last_batch(self.network, examples, batch_size, accumulate)
        self.unfinished = False
        check_precision(self.network, precision)
        self._begin(plan, examples)
        plan = self.plan or plan
        if parts is not None:
            examples, checks = self._cut(parts, device, examples, checks)
        trainer = Trainer(
            self,
            examples,
            plan,
            validation=checks,
            run=folder,
            optimizer=own_optimizer,
            schedule=own_schedule,
            augment=augment,
            callbacks=callbacks,
            show=progress,
        )
        if folder is not None:
            # An earlier run is deleted only here, after every check has passed.
            first_only(functools.partial(runs.clear, folder))
            self.run = folder.resolve()
            self.history = trainer.history
            trainer.save_checkpoint()
            self.complete = False
            with self.whole(on_first=True):
                first_only(functools.partial(self.save, folder))
        return self._carry_out(trainer, folder, before)

    @over_processes
    @runs.holds_locks
    def resume(
        self,
        data: Any,
        run: str | Path,
        *,
        validation: Any = None,
        extend: int = 0,
        optimizer: OptimizerFactory | None = None,
        schedule: Callable[[Any], Any] | None = None,
        n_data: int | None = None,
        device: torch.device | str | None = None,
        progress: bool = True,
        augment: Callable[[Any], Any] | None = None,
        callbacks: Sequence[Any] = (),
        distributed: bool | str = True,
    ) -> History:
        """Continue an interrupted run to the end of its plan, with the result of a run that was never interrupted.

        Args:
            data: the data of the run, in the same order; other data is refused.
            run: the run folder that `fit(run=)` wrote.
            validation: the validation data of the run, where it had any.
            extend: epochs to add to the plan.
            optimizer: the function that `fit` was given, where it was given a function.
            schedule: the function that `fit` was given, where it was given a function.
            n_data: the number of examples, where a loader has no length.
            device: where to train; the method is moved there.
            progress: show a bar (never when the output is not a terminal).
            augment: the function that `fit` was given, where it was given one.
            callbacks: objects with some of the methods of `bf.callbacks.Callback`.
            distributed: as for `fit`, with any number of processes. A run that was sharded is again, unless this is
                given.

        Returns:
            The history of the whole run.

        Raises:
            RunError: the folder has no checkpoint, or it is a run of another method, prior, likelihood or data.

        Examples:
            >>> point = bf.PointEstimate(net, "categorical")
            >>> history = point.fit((x, y), epochs=2, run="runs/point", progress=False)
            >>> len(bf.load("runs/point").resume((x, y), "runs/point", extend=3, progress=False))
            5

        """
        if not isinstance(run, str | Path):
            raise TypeError(f"run must be a run folder, got {type(run).__name__}: resume(data, run)")
        folder = Path(run)
        as_the_run(folder, distributed)
        group = active()
        sharded = group is not None and group.sharded
        plan, tensors, state = saving.to_resume(self, folder, in_parts=sharded)
        if extend:
            plan = extended(plan, extend, state)
        parts = in_parts(self, plan)
        examples, checks = self._read(data, validation, n_data, device if parts is None else None)
        start_alike(self, examples, plan)
        data_identity.check_same(state.get("data"), examples, plan.batch_size, folder)
        check_precision(self.network, plan.precision)
        self._begin(plan, examples)
        if parts is not None:
            examples, checks = self._cut(parts, device, examples, checks)
        trainer = Trainer(
            self,
            examples,
            plan,
            validation=checks,
            run=folder,
            optimizer=optimizer,
            schedule=schedule,
            augment=augment,
            callbacks=callbacks,
            show=progress,
        )
        if self.shard is not None:
            tensors, _ = read_parts(folder, self, trainer.optimizer, self.shard)
        trainer.restore(tensors, state)
        first_only(functools.partial(runs.delete_scores, folder))
        self.run, self.complete = folder.resolve(), False
        return self._carry_out(trainer, folder)

    def loop_optimizer(
        self,
        *,
        n_data: int,
        batch_size: int = 128,
        epochs: int = 10,
        optimizer: str | OptimizerFactory = "adam",
        learning_rate: float | None = None,
        kl: str | KL = "uniform",
        seed: int = 0,
    ) -> Optimizer:
        """The optimiser whose steps `fit` makes, for a training loop of one's own with `loss`.

        SGLD, SGHMC and IVON have update rules of their own. SWAG keeps its learning rate constant in the second half
        and takes snapshots, SGLD and SGHMC store samples: the steps of this optimiser do all that. Other methods may
        use any torch optimiser. The rate is constant; a torch scheduler on this optimiser changes it.

        Args:
            n_data: the number of examples in the whole training set.
            batch_size: examples per step.
            epochs: passes over the data that the loop will make.
            optimizer: its name, or a function `(parameters, lr=) -> Optimizer`, as for `fit`.
            learning_rate: of the mean loss over a batch. None is 0.001, but IVON, SGLD and SGHMC need a rate.
            kl: a temperature, where `loss` is to have one: `uniform,temperature=0.5`.
            seed: of the noise.

        Returns:
            A torch optimiser over the method's parameters.

        Raises:
            ValueError: the method cannot follow these settings, or needs a learning rate.

        Examples:
            >>> sgld = bf.SGLD(net, "categorical", prior="normal:1", chains=1, samples=20)
            >>> optimizer = sgld.loop_optimizer(n_data=len(x), batch_size=len(x), epochs=40, learning_rate=1e-3)
            >>> for step in range(40):
            ...     optimizer.zero_grad()
            ...     sgld.loss(x, y, n_data=len(x), step=step).backward()
            ...     optimizer.step()
            >>> sgld.finish((x, y)).held  # the samples of the second half
            20

        """
        n_data = at_least("n_data", n_data, 1)
        if learning_rate is None and self.rate_of_loops:
            raise ValueError(f"loop_optimizer needs learning_rate=: {self.rate_of_loops}")
        rate, weighting = 1e-3 if learning_rate is None else learning_rate, KL.parse(kl)
        settings = {"epochs": epochs, "batch_size": batch_size, "learning_rate": rate, "seed": seed}
        plan, own_optimizer, _ = make_plan(optimizer, "constant", weighting, settings)
        if weighting.weighting != "uniform" or weighting.warm_up:
            raise ValueError(
                f"the weight of the KL is constant in a loop of your own: use kl='uniform', got {plan.kl!r}"
            )
        self._begin_loop(plan, CountedExamples(n_data))
        made = self.make_optimizer(own_optimizer or plan.optimizer, rate)
        self._loop_data, self._loop_temperature = n_data, weighting.temperature
        made.register_step_post_hook(self._after_own_step)
        self.train()
        return made

    def finish(self, data: Any, *, n_data: int | None = None, device: torch.device | str | None = None) -> Self:
        """Complete a training loop of one's own: compute what the posterior needs besides the trained weights.

        Laplace computes its curvature, SWAG the running statistics of its draws; SGLD and SGHMC check their samples.
        The other methods need nothing more. All of them leave training mode, and their predictions on some of the data
        are checked as after `fit`. Until then SWAG, Laplace, SGLD and SGHMC refuse to predict with draws.

        Args:
            data: the training data, in any form that `fit` takes.
            n_data: the number of examples, where a loader has no length.
            device: where to compute; the method is moved there.

        Returns:
            The method itself, ready to predict and to save.

        Raises:
            ValueError: the loop did not collect what the method needs, or the data does not fit the network.

        Examples:
            >>> laplace = bf.LaplaceApproximation(net, "categorical", structure="diagonal")
            >>> optimizer = torch.optim.Adam(laplace.parameters(), lr=0.05)
            >>> for step in range(50):
            ...     optimizer.zero_grad()
            ...     laplace.loss(x, y, n_data=len(x), step=step).backward()
            ...     optimizer.step()
            >>> laplace.predict(x)
            Traceback (most recent call last):
            ValueError: LaplaceApproximation was trained in a loop of your own and has no posterior yet: ...
            >>> bool(laplace.finish((x, y)).predict(x).epistemic.max() > 0)
            True

        """
        examples, _ = self._read(data, None, n_data, device)
        self._before_finish(examples)
        if self.needs_finish and self._last_data not in (None, examples.n_data):
            raise ValueError(
                f"finish needs the whole training set, {self._last_data:,} examples as in loss(n_data=), got "
                f"{examples.n_data:,}"
            )
        self._last_data = None
        self._loop_data, self._loop_temperature = None, 1.0
        self.eval()
        try:
            self._conclude(examples)
        finally:
            self._end()
        self.unfinished, self.complete = False, True
        self._examine(examples, None, [])
        self._warn()
        return self

    # What the above is made of.

    def _read(
        self, data: Any, validation: Any, n_data: int | None, device: torch.device | str | None
    ) -> tuple[Examples, Examples | None]:
        if device is not None:
            try:
                self.to(device)
            except (RuntimeError, AssertionError) as problem:
                raise ValueError(f"cannot use device {str(device)!r}: {first_line(problem)}") from None
        where = next(self.parameters()).device
        examples = as_examples(data, self.likelihood, self.network.dtype, n_data).to(where)
        self.column_names = getattr(examples, "columns", None)
        if self.likelihood.adapts:
            self.likelihood.adapt_to(all_targets(examples))
        checks = None
        if validation is not None:
            columns = self.column_names
            checks = for_scoring(validation, self.likelihood, self.network.dtype, "validation", columns).to(where)
        self.input_names = None
        found: dict[str, str] = {}
        for part in (examples, checks):
            if part is not None:
                self.check_examples(part)
                found = self._before_fit if part is examples else found
        self._before_fit = found
        for sentence in self._before_fit.values():
            warn(sentence)
        # Whatever was guaranteed was guaranteed for the weights before.
        self.recalibration, self.guarantees = None, {}
        return examples, checks

    def _cut(
        self, group: Group, device: torch.device | str | None, examples: Examples, checks: Examples | None
    ) -> tuple[Examples, Examples | None]:
        """Keep the part of this process alone, and move it and the data to the device."""
        # The trace shows which layers read their weights alone; it needs all of them.
        self.network.traced(few(self.network, self._by_name(examples.first()[0])))
        self.cut(group, device)
        where = next(self.parameters()).device
        return examples.to(where), None if checks is None else checks.to(where)

    def check_examples(self, examples: Examples) -> None:
        """Run the network on a first batch, refuse targets that do not fit its outputs, and note the inputs' form.

        Args:
            examples: the data, as `as_examples` reads it.

        """
        x, y = examples.first()
        x = self._by_name(x)
        self.input_names = self.input_names or names_of(x)
        every = x
        if isinstance(examples, TensorExamples):
            every, y = examples.x, examples.y
        self._tried = {}
        self._check_batch(every, y)
        self._before_fit = look_at(self, x, y, examples.n_data)
        if not isinstance(examples, TensorExamples):
            examples.check = self._check_batch
        self.input_shapes = shapes_of(x)

    def _carry_out(self, trainer: Trainer, folder: Path | None, before: Sequence[float] = ()) -> History:
        self._under_way = True
        try:
            trainer.train()
            self.join()
            self._conclude(trainer.examples)
        except KeyboardInterrupt:
            self.join()
            raise
        except TrainingError as problem:
            self.join()
            self.warnings = {**self._before_fit, "diverged": f"training diverged: {problem}"}
            raise
        finally:
            self._under_way = False
            self.history = trainer.history
            self._end()
            self.eval()
        self.complete = True
        self._examine(trainer.examples, trainer.validation, [*before, *self.history["kl"]])
        if folder is not None:
            first_only(functools.partial(self.save, folder))
        self._warn()
        return self.history

    def _after_own_step(self, *_: Any) -> None:
        zero = self.network.empty.new_zeros(())
        self.absorb(Objective(zero, zero, zero))

    def _examine(self, examples: Examples, validation: Examples | None, kls: Sequence[float]) -> None:
        self.warnings = dict(self._before_fit)
        findings = examine(self, examples, validation, kls)
        self.warnings = {**self._before_fit, **findings.warnings}
        self.checked, self.final_elbo = findings.checked, findings.elbo

    def _warn(self) -> None:
        for kind, sentence in self.warnings.items():
            if kind not in self._before_fit:  # those were given before training
                warn(sentence)
