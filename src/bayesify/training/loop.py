"""The training loop: one plan, followed step by step, that can stop anywhere and go on to the same bits.

Noise, shuffling and schedules are functions of the step, so a checkpoint is the tensors, the optimiser and the step
number. A loss that stops being finite ends training with the reason, and the last good state is put back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from bayesify import files
from bayesify.errors import TrainingError
from bayesify.runs import checkpoint
from bayesify.training import checkpoints, data_identity, histograms
from bayesify.training.engines.engine import Engine
from bayesify.training.examples import Examples
from bayesify.training.interrupts import deferred_interrupts
from bayesify.training.kl import KL
from bayesify.training.optimisation import OptimizerFactory, rate_factor
from bayesify.training.plan import CUSTOM, History, Plan, Progress, Schedule, extended, make_plan, resume_plan
from bayesify.training.schedule import StepSchedule

if TYPE_CHECKING:
    from bayesify.training.trainable import Trainable

__all__ = ["History", "Plan", "Schedule", "Trainer", "extended", "make_plan", "resume_plan"]


class Trainer:
    """Follows a plan with one method on one set of examples."""

    def __init__(
        self,
        method: Trainable,
        examples: Examples,
        plan: Plan,
        *,
        validation: Examples | None = None,
        run: Path | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: Callable[[float], float] | None = None,
        show: bool = True,
    ) -> None:
        if validation is None and (plan.patience is not None or plan.keep == "best"):
            raise ValueError("early stopping and keep='best' need validation data: give validation=(x, y)")
        for given, text, name in ((optimizer, plan.optimizer, "optimizer"), (schedule, plan.schedule, "schedule")):
            if text == CUSTOM and given is None:
                raise ValueError(f"this plan was made with an {name} of yours: give {name}= again")
        self.method, self.examples, self.validation, self.run = method, examples, validation, run
        self.optimizer = method.make_optimizer(optimizer or plan.optimizer, plan.learning_rate)
        self.batches = examples.count_batches(plan.batch_size)
        self.kl = KL.parse(plan.kl)
        step_schedule = StepSchedule(
            [(self.kl, self.optimizer.param_groups[0]["lr"])],
            schedule or (lambda progress: rate_factor(plan.schedule, progress)),
            epochs=plan.epochs,
            batches=self.batches,
            batch_size=plan.batch_size,
            n_data=examples.n_data,
        )
        self.engine = Engine(method, examples, plan, self.optimizer, step_schedule)
        self.progress = Progress()
        self.history = History(method=method.name)
        self.show = show
        self.best_state: dict[str, Tensor] | None = None

    @property
    def plan(self) -> Plan:
        """The plan, in which how the steps are made has been decided once the first was."""
        return self.engine.plan

    @property
    def total_steps(self) -> int:
        return self.plan.epochs * self.batches

    @cached_property
    def data(self) -> dict[str, Any]:
        """What tells this data from other data, for who resumes."""
        return data_identity.mark(self.examples, self.plan.batch_size)

    def train(self) -> History:
        """Go on from where the progress is to the end of the plan."""
        bar = tqdm(
            total=self.total_steps,
            initial=self.progress.step,
            unit="step",
            disable=None if self.show else True,
            leave=False,
        )
        self.method.train()
        good = self._state()
        with bar, deferred_interrupts() as interrupted:
            while self._unfinished():
                whole = self._epoch(bar, interrupted)
                kl = self._kl()
                if not (math.isfinite(self.progress.nll_sum) and math.isfinite(kl) and self._finite()):
                    self._give_up(good)
                if whole:
                    self._close_epoch(bar, kl)
                    good = self._state()
                if interrupted() and self._unfinished():
                    self.save_checkpoint()
                    raise KeyboardInterrupt
        self._finish()
        return self.history

    def _unfinished(self) -> bool:
        return self.progress.step < self.total_steps and not self.progress.done

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Put a checkpoint back."""
        self.method.load_state_dict(_part(tensors, "model/"))
        checkpoints.unpack_optimizer(self.optimizer, tensors, state["optimizer"])
        self.progress = Progress(**state["progress"])
        self.history = History(state["history"], state.get("stopped", ""), self.method.name)
        self.best_state = _part(tensors, "best/") or None

    def save_checkpoint(self) -> None:
        """Write the state to the run's folder."""
        if self.run is None:
            return
        tensors, packed = checkpoints.pack_optimizer(self.optimizer)
        tensors |= {f"model/{name}": tensor for name, tensor in self.method.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in (self.best_state or {}).items()}
        state = {
            "plan": asdict(self.plan),
            "progress": asdict(self.progress),
            "optimizer": packed,
            "history": self.history.records,
            "stopped": self.history.stopped,
            "data": self.data,
        }
        checkpoint.write(self.run / "checkpoint" / "state.safetensors", tensors, state)
        files.write_text(self.run / "history.jsonl", self.history.to_jsonl())

    def _epoch(self, bar: Any, interrupted: Callable[[], bool]) -> bool:
        """Train to the end of the epoch, or to an interrupt in it; whether the end was reached."""
        progress = self.progress
        epoch, skip = divmod(progress.step, self.batches)
        began = time.perf_counter()
        for _ in self.engine.epoch(epoch, skip, progress, bar.set_description):
            progress.step += 1
            bar.update()
            if interrupted():
                break
        progress.seconds += time.perf_counter() - began
        self.engine.record()
        if interrupted() and progress.step < (epoch + 1) * self.batches:
            return False
        if progress.seen == 0:
            raise ValueError(f"epoch {epoch + 1} had no data: the loader gave nothing when it was read again")
        progress.step = (epoch + 1) * self.batches
        return True

    def _kl(self) -> float:
        """What the prior's part is now, per member: once an epoch, as a step needs its gradient and not its value."""
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
        if self.validation is not None:
            record |= self._validate()
        if histograms.due(epoch, self.plan.epochs):
            record["weights"] = histograms.weight_histograms(self.method)
        self.history.records.append(record)
        bar.set_postfix({k: f"{v:.4g}" for k, v in record.items() if k in {"loss", "nll", "validation_nll"}})
        progress.nll_sum = progress.seen = progress.seconds = 0.0
        self._judge(record, epoch)
        if epoch % self.plan.checkpoint_every == 0 or progress.done or progress.step >= self.total_steps:
            self.save_checkpoint()

    def _judge(self, record: dict[str, Any], epoch: int) -> None:
        if self.validation is None:
            return
        progress, plan, score = self.progress, self.plan, record["validation_nll"]
        if math.isnan(score):
            score = math.inf  # nothing is less than NaN: were it the best so far, it would stay so
        if progress.best is None or score < progress.best:
            progress.best, progress.best_epoch = score, epoch
            if plan.keep == "best":
                self.best_state = self._state()
        elif plan.patience is not None and epoch - progress.best_epoch >= plan.patience:
            progress.done = True
            self.history.stopped = f"validation NLL has not improved for {plan.patience} epochs"

    def _validate(self) -> dict[str, float]:
        assert self.validation is not None
        method, likelihood = self.method, self.method.likelihood
        nll = correct = total = rows = 0.0
        for x, targets in self.validation.in_order(method.inputs_at_once):
            predictive = method.predict(x, draws=self.plan.validation_draws, seed=self.plan.seed)
            y = targets.to(predictive.outputs.device)
            nll -= float(predictive.log_prob(y).double().sum())
            rows += len(predictive)
            if likelihood.kind == "classification":
                correct += float((predictive.labels == y.view(predictive.labels.shape)).double().sum())
                total += predictive.labels.numel()
        self.method.train()
        record = {"validation_nll": nll / max(rows, 1.0)}
        if total:
            record["validation_error"] = 1 - correct / total
        return record

    def _state(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.method.state_dict().items()}

    def _finite(self) -> bool:
        return all(bool(torch.isfinite(p).all()) for p in self.method.parameters())

    def _give_up(self, good: dict[str, Tensor]) -> None:
        epoch = self.progress.step // self.batches
        self.method.load_state_dict(good)
        self.method.eval()
        kept = "where it started" if epoch == 1 else f"after epoch {epoch - 1}"
        raise TrainingError(
            f"the loss stopped being finite in epoch {epoch}: lower learning_rate (now {self.plan.learning_rate:g}) "
            f"or scale the data; the network is left as it was {kept}"
        )

    def _finish(self) -> None:
        if self.plan.keep == "best" and self.best_state is not None:
            self.method.load_state_dict(self.best_state)
        self.method.eval()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
