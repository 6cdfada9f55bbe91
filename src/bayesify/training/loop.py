"""The training loop: it follows a plan, can stop at any step, and resumes to the same bits.

Noise, shuffling and schedules are functions of the step number, so a checkpoint holds the tensors, the optimiser and
that number. If the loss stops being finite, training ends with an error, and the last finite state is restored.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify import files
from bayesify.distributed import Group, active
from bayesify.distributed.group import digest
from bayesify.errors import TrainingError, counted
from bayesify.functional.recomputing import modules_to_recompute
from bayesify.runs import checkpoint
from bayesify.training import checkpoints, data_identity, histograms
from bayesify.training.batches import Examples
from bayesify.training.callbacks import Callbacks, StopTraining
from bayesify.training.engines.engine import Engine
from bayesify.training.interrupts import deferred_interrupts
from bayesify.training.kl import KL
from bayesify.training.moving_average import MovingAverage
from bayesify.training.optimisation import OptimizerFactory
from bayesify.training.plan import (
    CUSTOM,
    TIME_OVER,
    History,
    Plan,
    Progress,
    Schedule,
    extended,
    make_plan,
    resume_plan,
)
from bayesify.training.progress_bar import progress_bar
from bayesify.training.rate_schedules import as_function
from bayesify.training.recovery import (
    MOST_ROLLBACKS,
    Snapshot,
    empty_cache,
    is_out_of_memory,
    rate_factor_after,
    splits,
)
from bayesify.training.schedule import StepSchedule
from bayesify.training.sharded_checkpoints import cut_tensors, write_in_parts
from bayesify.training.trainable import shared_parameters

if TYPE_CHECKING:
    from bayesify.training.trainable import Trainable

logger = logging.getLogger("bayesify")
_PRIOR = "prior."
__all__ = ["CUSTOM", "History", "Plan", "Schedule", "Trainer", "extended", "make_plan", "resume_plan"]


class Trainer:
    """Trains one method on one data set by a plan.

    Args:
        method: the method to train.
        examples: the training data.
        plan: the settings.
        validation: data that is scored after each epoch, for early stopping and `keep="best"`.
        run: folder for checkpoints and the history; None writes nothing.
        optimizer: a function `(parameters, lr=) -> Optimizer`, where the plan says `custom`.
        schedule: a function of the share of training that is done, or a maker of torch schedulers, where the plan says
            `custom`.
        augment: a function that changes the inputs of each batch, where the plan says `custom`.
        callbacks: called at fixed points of the training.
        show: show a progress bar.

    Attributes:
        progress: where training is.
        history: what each epoch recorded.
        best_state: the tensors of the best epoch so far, with `keep="best"`.

    Raises:
        ValueError: if the plan needs validation data or a function that is not given.

    Examples:
        >>> from bayesify.training import Plan
        >>> from bayesify.training.users_data import as_examples
        >>> from bayesify.training.loop import Trainer
        >>> method = bf.Variational(net, "categorical", prior="normal:1")
        >>> examples = as_examples((x, y), method.likelihood, method.network.dtype)
        >>> Trainer(method, examples, Plan(epochs=2, learning_rate=0.05), show=False).train()["step"]
        [1, 2]

    """

    def __init__(
        self,
        method: Trainable,
        examples: Examples,
        plan: Plan,
        *,
        validation: Examples | None = None,
        run: Path | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: Callable[[Any], Any] | None = None,
        augment: Callable[[Any], Any] | None = None,
        callbacks: Sequence[Any] = (),
        show: bool = True,
    ) -> None:
        if validation is None and (plan.patience is not None or plan.keep == "best"):
            raise ValueError("early stopping and keep='best' need validation data: give validation=(x, y)")
        for function, text, name in (
            (optimizer, plan.optimizer, "optimizer"),
            (schedule, plan.schedule, "schedule"),
            (augment, plan.augment, "augment"),
        ):
            if text == CUSTOM and function is None:
                raise ValueError(f"this run was trained with your own {name} function: give {name}= again")
        self.method, self.examples, self.validation, self.run = method, examples, validation, run
        rate: Any = plan.learning_rate  # None for methods that find their step size; others refuse it
        self.optimizer = method.make_optimizer(optimizer or plan.optimizer, rate)
        self.batches = examples.count_batches(plan.batch_size)
        self.kl = KL.parse(plan.kl)
        if plan.on_nan == "rollback" and plan.learning_rate is None:
            raise ValueError("on_nan='rollback' halves the learning rate: give a learning_rate, or leave out on_nan=")
        self._factor = as_function(
            plan.schedule if schedule is None else schedule, self.optimizer, plan.epochs * self.batches
        )
        self._step_schedule = StepSchedule(
            [(self.kl, self.optimizer.param_groups[0]["lr"])],
            lambda share: self._factor(share) * rate_factor_after(self.progress.rollbacks),
            epochs=plan.epochs,
            batches=self.batches,
            batch_size=plan.batch_size,
            n_data=examples.n_data,
        )
        self.callbacks = Callbacks(callbacks)
        self.average = None if plan.ema is None else MovingAverage(list(method.parameters()), plan.ema)
        self._augment = augment
        self.engine = self._make_engine(plan)
        self.progress = Progress()
        self._snapshot: Snapshot | None = None  # of the last good epoch
        self._start: Snapshot | None = None
        self.history = History(method=method.name)
        # Of several processes, the first alone shows a bar and writes.
        self.group = active()
        self.show = show and (self.group is None or self.group.first)
        self.best_state: dict[str, Tensor] | None = None
        self._stop: str | None = None

    @property
    def plan(self) -> Plan:
        """The plan; after the first step it says whether the steps are compiled."""
        return self.engine.plan

    @property
    def total_steps(self) -> int:
        """Steps of the whole plan."""
        return self.plan.epochs * self.batches

    @cached_property
    def data(self) -> dict[str, Any]:
        """What identifies the data, so that resuming with other data is refused."""
        return data_identity.mark(self.examples, self.plan.batch_size)

    def _make_engine(self, plan: Plan) -> Engine:
        watched = self.callbacks.each_step or self.average is not None
        method, examples = self.method, self.examples
        made = Engine(
            method, examples, plan, self.optimizer, self._step_schedule, augment=self._augment, watched=watched
        )
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        return made

    def train(self) -> History:
        """Train from the current progress to the end of the plan.

        Returns:
            The history.

        Raises:
            TrainingError: if the loss stops being finite; the method has the last finite state then.
            KeyboardInterrupt: if training is interrupted, after a checkpoint is written.

        """
        bar = progress_bar(total=self.total_steps, initial=self.progress.step, unit="step", show=self.show)
        self.method.train()
        network = self.method.network
        network.training_precision = self.plan.precision
        network.recomputed = modules_to_recompute(network.template, self.plan.recompute or ())
        self.callbacks.call("on_fit_start", self.method, self.plan)
        self._take_snapshot(first=True)
        try:
            self._train(bar)
        finally:
            network.training_precision, network.recomputed = "full", []
            self.callbacks.call("on_fit_end", self.method, self.history)
        return self.history

    def _train(self, bar: Any) -> None:
        good = self._state()
        with bar, deferred_interrupts() as arrived:
            interrupted = self._agreed(arrived)
            while self._unfinished():
                try:
                    whole = self._epoch(bar, interrupted)
                except (RuntimeError, MemoryError) as problem:
                    if not self._can_split(problem):
                        raise
                    whole = None
                if whole is None:
                    self._go_back(bar, replace(self.plan, compiled=False, accumulate=2 * self.plan.accumulate))
                    continue
                kl = self._kl()
                if not (math.isfinite(self.progress.nll_sum) and math.isfinite(kl) and self._finite()):
                    if self._can_roll_back():
                        self._roll_back(bar)
                        continue
                    self._give_up(good)
                if whole:
                    self._close_epoch(bar, kl)
                    good = self._state()
                    self._take_snapshot()
                if interrupted() and self._unfinished():
                    self.save_checkpoint()
                    raise KeyboardInterrupt
        self._finish()

    def _agreed(self, arrived: Callable[[], bool]) -> Callable[[], bool]:
        """Whether to stop after a step: an interrupt has arrived, in any of several processes."""
        group = self.group
        if group is None:
            return arrived
        group.wants_to_stop, group.stopping = arrived, False
        return lambda: group.stopping

    def _unfinished(self) -> bool:
        return self.progress.step < self.total_steps and not self.progress.done

    def _take_snapshot(self, *, first: bool = False) -> None:
        """Keep what a rollback needs: the last good epoch, or at least the start, where memory may run out."""
        if self.plan.on_nan == "rollback" or (first and self._on_accelerator and self.group is None):
            self._snapshot = Snapshot.of(*self._checkpoint())
        if first:
            self._start = self._snapshot

    def _can_roll_back(self) -> bool:
        return self.plan.on_nan == "rollback" and self.progress.rollbacks < MOST_ROLLBACKS

    def _roll_back(self, bar: Any) -> None:
        """Go back to the last good epoch, with half the learning rate for all later steps.

        Weights may be finite and yet beyond help: where the same epochs diverge a third time, go back to the start.
        """
        epoch = -(-self.progress.step // self.batches)
        rollbacks, again = self.progress.rollbacks + 1, self.progress.failed
        if again and epoch <= again + 1 and rollbacks > 2:
            self._snapshot = self._start
        self._go_back(bar, self.plan)
        self.method.lower_rate(rate_factor_after(rollbacks - self.progress.rollbacks))
        self.progress.rollbacks, self.progress.failed = rollbacks, epoch
        assert self.plan.learning_rate is not None
        logger.warning(
            "the loss diverged in epoch %d: back to %s, with the learning rate times %g (%.3g) from there",
            epoch,
            f"epoch {self.progress.step // self.batches}" if self.progress.step else "the start",
            rate_factor_after(rollbacks),
            self.plan.learning_rate * rate_factor_after(rollbacks),
        )

    def _can_split(self, problem: BaseException) -> bool:
        """Whether an error is one of memory that computing the gradient in more parts, from a good state, may cure."""
        able = self._snapshot is not None and is_out_of_memory(problem) and self.group is None
        return able and splits(self.plan.batch_size, 2 * self.plan.accumulate, self.method)

    def _go_back(self, bar: Any, plan: Plan) -> None:
        """Restore the newest good state: the last checkpoint, or the snapshot where that is newer or the only one."""
        assert self._snapshot is not None
        device, step = next(self.method.parameters()).device, self.progress.step
        # The captured steps of the old engine hold memory of their own.
        del self.engine
        empty_cache(device)
        saved = self._snapshot.taken(device)
        if self.run is not None and plan.on_nan != "rollback":
            tensors, state = checkpoint.read(self.run)
            saved = {name: tensor.to(device) for name, tensor in tensors.items()}, state
        self.restore(*saved)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        self.method.train()
        self.method.plan = plan
        self.engine = self._make_engine(plan)
        bar.update(self.progress.step - step)

    @property
    def _on_accelerator(self) -> bool:
        return next(self.method.parameters()).device.type != "cpu"

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore a checkpoint.

        Args:
            tensors: tensors of the method, of the optimiser and of the best epoch, by name.
            state: the rest of the checkpoint.

        """
        model = _part(tensors, "model/")
        self._load(model)
        checkpoints.unpack_optimizer(self.optimizer, tensors, state["optimizer"])
        self.progress = Progress(**state["progress"])
        self.history = History(state["history"], state.get("stopped", ""), self.method.name)
        best = _part(tensors, "best/")
        # A prior does not change in training: a sharded checkpoint has it once.
        of_prior = {name: tensor for name, tensor in model.items() if name.startswith(_PRIOR)}
        self.best_state = {**of_prior, **best} if best else None
        if self.average is not None:
            self.average.restore(_part(tensors, "ema/"))

    def save_checkpoint(self) -> None:
        """Write a checkpoint and the history to the run folder, where there is one."""
        shard = self.method.shard
        if self.run is None or not (self.group is None or self.group.first or shard is not None):
            return
        tensors, state = self._checkpoint()
        if shard is None:
            checkpoint.write(self.run, tensors, state)
        else:
            write_in_parts(self.run, shard, tensors, cut_tensors(self.method, self.optimizer, tensors), state)
        if shard is not None and not shard.group.first:
            return
        files.write_text(self.run / "history.jsonl", self.history.to_jsonl())

    def _checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, packed = checkpoints.pack_optimizer(self.optimizer)
        model = self.method.state_dict() if self.method.shard is None else self.method.state_of_parts()
        tensors |= {f"model/{name}": tensor for name, tensor in model.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in (self.best_state or {}).items()}
        if self.average is not None:
            tensors |= {f"ema/{name}": tensor for name, tensor in self.average.tensors().items()}
        state = {
            "plan": asdict(self.plan),
            "progress": asdict(self.progress),
            "optimizer": packed,
            "history": self.history.records,
            "stopped": self.history.stopped,
            "data": self.data if self.run is not None else None,
        }
        if self.method.shard is not None:
            state["sharded"] = {"own_draws": self.method.shard.group.own_draws}
        return tensors, state

    def _epoch(self, bar: Any, interrupted: Callable[[], bool]) -> bool:
        """Train to the end of the epoch or to an interrupt; return whether the end was reached."""
        progress = self.progress
        epoch, skip = divmod(progress.step, self.batches)
        began = time.perf_counter()
        for _ in self.engine.epoch(epoch, skip, progress, bar.set_description):
            progress.step += 1
            if self.average is not None:
                self.average.update(progress.step)
            self._stopping("on_step_end", self.method, progress.step)
            bar.update()
            if interrupted():
                break
        progress.seconds += time.perf_counter() - began
        self.engine.record()
        if interrupted() and progress.step < (epoch + 1) * self.batches:
            return False
        if progress.seen == 0:
            raise ValueError(f"epoch {epoch + 1} had no data: give a loader that can be read more than once")
        progress.step = (epoch + 1) * self.batches
        return True

    def _kl(self) -> float:
        """The KL per member; computed once an epoch, because a step needs only its gradient."""
        with torch.no_grad():
            return float(self.method.kl(self.progress.step, self.plan.draws)) / self.method.members

    def _close_epoch(self, bar: Any, kl: float) -> None:
        progress, members = self.progress, self.method.members
        n = max(progress.seen, 1.0)
        epoch = progress.step // self.batches
        nll = progress.nll_sum / n / members
        record: dict[str, Any] = {
            "epoch": epoch,
            "step": progress.step,
            "loss": nll + self.kl.factor(epoch) * kl / self.examples.n_data,
            "nll": nll,
            "kl": kl,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "seconds": progress.seconds,
        }
        if progress.rollbacks:
            record["rollbacks"] = progress.rollbacks
        if self.method.has_elbo:
            # The whole KL, whatever the temperature or the warm-up of the objective.
            record["elbo"] = -self.examples.n_data * nll - kl
        if self.validation is not None:
            record |= self._validate()
        if histograms.due(epoch, self.plan.epochs):
            record["weights"] = histograms.weight_histograms(self.method)
        self.history.records.append(record)
        bar.set_postfix({k: f"{v:.4g}" for k, v in record.items() if k in {"loss", "nll", "validation_nll"}})
        progress.nll_sum = progress.seen = progress.seconds = 0.0
        self._judge(record, epoch)
        self._stopping("on_epoch_end", self.method, record)
        if self._stop is not None:
            progress.done, self.history.stopped = True, self._stop
        self._watch_the_clock(record["seconds"])
        if self.group is not None:
            self._stop_together(self.group)
        if epoch % self.plan.checkpoint_every == 0 or progress.done or progress.step >= self.total_steps:
            self.save_checkpoint()

    def _stop_together(self, group: Group) -> None:
        """Stop where one process stops, and refuse to go on with weights that are no longer the same."""
        stops = group.values(self.history.stopped if self.progress.done else None)
        stopped = next((reason for reason in stops if reason is not None), None)
        if stopped is not None:
            self.progress.done, self.history.stopped = True, stopped
        group.check_same(
            "weights after an epoch",
            digest(shared_parameters(self.method)),
            "something in the network or in a callback depends on the process",
        )

    def _stopping(self, hook: str, *arguments: Any) -> None:
        """Call a hook of the callbacks; one of them may end training after the epoch."""
        try:
            self.callbacks.call(hook, *arguments)
        except StopTraining as reason:
            self._stop = str(reason) or "a callback stopped training"

    def _judge(self, record: dict[str, Any], epoch: int) -> None:
        if self.validation is None:
            return
        progress, plan, score = self.progress, self.plan, record["validation_nll"]
        if math.isnan(score):
            score = math.inf  # no score is less than NaN, so NaN would stay the best
        if progress.best is None or score < progress.best:
            progress.best, progress.best_epoch = score, epoch
            if plan.keep == "best":
                with self._averaged():
                    self.best_state = self._state()
        elif plan.patience is not None and epoch - progress.best_epoch >= plan.patience:
            progress.done = True
            self.history.stopped = f"validation NLL has not improved for {counted(plan.patience, 'epoch')}"

    def _watch_the_clock(self, seconds: float) -> None:
        """Stop where another epoch would end after the method's deadline."""
        deadline = self.method.deadline
        if deadline is not None and not self.progress.done and time.perf_counter() + seconds > deadline:
            self.progress.done = True
            self.history.stopped = TIME_OVER

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        method, likelihood = self.method, self.method.likelihood
        nll = correct = total = rows = 0.0
        with self._averaged(), self.method.whole():
            for x, targets in self.validation.in_order(method.inputs_at_once):
                predictive = method.predict(x, draws=self.plan.validation_draws, seed=self.plan.seed)
                y = targets.to(predictive.outputs.device)
                nll -= float(predictive.log_prob(y).double().sum())
                rows += len(predictive)
                if likelihood.kind == "classification":
                    right = predictive.labels == likelihood.compared(y).view(predictive.labels.shape)
                    counted = likelihood.counted(y)
                    right = right if counted is None else right[counted.view(right.shape)]
                    correct += float(right.double().sum())
                    total += right.numel()
        self.method.train()
        record = {"validation_nll": nll / max(rows, 1.0)}
        if total:
            record["validation_error"] = 1 - correct / total
        return record

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside this context the method has the average of its weights, where it is kept."""
        return nullcontext() if self.average is None else self.average.shown()

    def _state(self) -> dict[str, Tensor]:
        in_parts, state = self.method.shard is not None, self.method.state_dict()
        return {
            name: tensor.detach().clone()
            for name, tensor in state.items()
            if not (in_parts and name.startswith(_PRIOR))
        }

    def _load(self, state: dict[str, Tensor]) -> None:
        if self.method.shard is None:
            self.method.load_state_dict(state)
        else:
            self.method.load_parts(state)

    def _finite(self) -> bool:
        finite = all(bool(torch.isfinite(p).all()) for p in self.method.parameters())
        # Each process may see a part of the weights alone.
        return finite if self.method.shard is None else not self.method.shard.group.any(not finite)

    def _give_up(self, good: dict[str, Tensor]) -> None:
        epoch = self.progress.step // self.batches
        self._load(good)
        self.method.eval()
        kept = "at the start" if epoch == 1 else f"after epoch {epoch - 1}"
        rate = self.plan.learning_rate
        advice = (
            "scale the data, or give a learning_rate"
            if rate is None
            else f"lower learning_rate (now {rate:g}) or scale the data"
        )
        raise TrainingError(
            f"the loss diverged in epoch {epoch}: {advice}; the network is restored to its state {kept}"
        )

    def _finish(self) -> None:
        if self.plan.keep == "best" and self.best_state is not None:
            self._load(self.best_state)
        elif self.average is not None:
            self.average.store()
        self.method.eval()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
