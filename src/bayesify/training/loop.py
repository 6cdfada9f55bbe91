"""The training loop: one plan, followed step by step, that can stop anywhere and go on to the same bits.

Noise, shuffling and schedules are functions of the step, so a checkpoint is the tensors, the optimiser and the step
number. A loss that stops being finite ends training with the reason, and the last good state is put back.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from bayesify.errors import TrainingError
from bayesify.training import checkpoint, snapshots
from bayesify.training.compiling import worth_compiling
from bayesify.training.examples import Batch, Examples, IndexedExamples, TensorExamples, to_device
from bayesify.training.graphs import GraphedSteps
from bayesify.training.interrupts import deferred_interrupts
from bayesify.training.kl import KL
from bayesify.training.optimisation import OptimizerFactory, rate_factor
from bayesify.training.plan import CUSTOM, History, Plan, Schedule, extended, make_plan, resume_plan
from bayesify.training.step import FusedStep, capturable, fused_step

if TYPE_CHECKING:
    from bayesify.methods.method import Method
    from bayesify.training.apart import StepsApart

__all__ = ["History", "Plan", "Schedule", "Trainer", "extended", "make_plan", "resume_plan"]


@dataclass
class _Progress:
    """Where training is: kept in checkpoints next to the tensors."""

    step: int = 0
    seen: float = 0.0
    nll_sum: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    done: bool = False


class Trainer:
    """Follows a plan with one method on one set of examples."""

    def __init__(
        self,
        method: Method,
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
        self.method, self.examples, self.plan, self.validation, self.run = method, examples, plan, validation, run
        self.schedule = schedule or (lambda progress: rate_factor(plan.schedule, progress))
        self.optimizer = method.make_optimizer(optimizer or plan.optimizer, plan.learning_rate)
        self.base_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.batches = examples.count_batches(plan.batch_size)
        self.kl = KL.parse(plan.kl)
        self.progress = _Progress()
        self.history = History()
        self.show = show
        self.best_state: dict[str, Tensor] | None = None
        self._device = next(method.parameters()).device
        self._asked = False
        self._fused: FusedStep | None = None
        self._graphed: GraphedSteps | StepsApart | None = None
        self._ahead: tuple[Tensor, Tensor] | None = None  # order and numbers of the epoch to come

    @property
    def total_steps(self) -> int:
        return self.plan.epochs * self.batches

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
        checkpoint.unpack_optimizer(self.optimizer, tensors, state["optimizer"])
        self.progress = _Progress(**state["progress"])
        self.history = History(state["history"], state.get("stopped", ""))
        self.best_state = _part(tensors, "best/") or None

    def save_checkpoint(self) -> None:
        """Write the state to the run's folder."""
        if self.run is None:
            return
        tensors, packed = checkpoint.pack_optimizer(self.optimizer)
        tensors |= {f"model/{name}": tensor for name, tensor in self.method.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in (self.best_state or {}).items()}
        state = {
            "plan": asdict(self.plan),
            "progress": asdict(self.progress),
            "optimizer": packed,
            "history": self.history.records,
            "stopped": self.history.stopped,
        }
        checkpoint.write(self.run / "checkpoint" / "state.safetensors", tensors, state)
        checkpoint.write_text(self.run / "history.jsonl", self.history.to_jsonl())

    def _epoch(self, bar: Any, interrupted: Callable[[], bool]) -> bool:
        """Train to the end of the epoch, or to an interrupt in it; whether the end was reached."""
        progress = self.progress
        epoch, skip = divmod(progress.step, self.batches)
        began = time.perf_counter()
        for _ in self._steps(epoch, skip, bar):
            progress.step += 1
            bar.update()
            if interrupted():
                break
        progress.seconds += time.perf_counter() - began
        if self._fused is not None:
            self._fused.record()
        if interrupted() and progress.step < (epoch + 1) * self.batches:
            return False
        if progress.seen == 0:
            raise ValueError(f"epoch {epoch + 1} had no data: the loader gave nothing when it was read again")
        progress.step = (epoch + 1) * self.batches
        return True

    def _steps(self, epoch: int, skip: int, bar: Any) -> Iterator[int]:
        """Make an epoch's steps one by one, giving each one's number from 1; then add up what they showed."""
        plan, progress, members = self.plan, self.progress, self.method.members
        total = torch.tensor(progress.nll_sum, dtype=torch.float64, device=self._device)
        if not self._asked and isinstance(self.examples, IndexedExamples):
            leading = torch.arange(min(plan.batch_size, self.examples.n_data))
            batch = to_device(self.examples.fetch(leading), self._device)
            self._fuse([batch] * members, bar)
        try:
            if self._graphed is not None:
                yield from self._replays(self._graphed, epoch, skip, total)
                return
            batches = self.examples.batches(plan.batch_size, plan.seed, epoch, members, skip)
            for number, batch in enumerate(itertools.islice(batches, self.batches - skip), skip + 1):
                where = [to_device(part, self._device) for part in batch]
                size = where[0][1].shape[0]
                if not self._asked:
                    self._fuse(where, bar)
                # Weighted by its size, so that an epoch's mean is the data's whatever the size of the last batch.
                total += self._step(where, number - 1, size).double() * size
                progress.seen += size
                yield number
        finally:
            progress.nll_sum = float(total)

    def _replays(self, graphed: GraphedSteps | StepsApart, epoch: int, skip: int, total: Tensor) -> Iterator[int]:
        size, n_data, first = self.plan.batch_size, self.examples.n_data, epoch * self.batches
        ahead, self._ahead = self._ahead, None
        order, numbers = self._prepared(graphed, epoch, skip) if ahead is None or skip else ahead
        graphed.begin(order, numbers, first, skip)
        self._set_rates(first + self.batches - 1)
        try:
            for number in range(skip, self.batches):
                own = min(size, n_data - number * size)
                graphed.step(own)
                self.progress.seen += own
                yield number + 1
            if epoch + 1 < self.plan.epochs:
                # The device is still at work: time for what the next epoch needs.
                self._ahead = self._prepared(graphed, epoch + 1, 0)
        finally:
            total += graphed.nll.sum()

    def _prepared(self, graphed: GraphedSteps | StepsApart, epoch: int, skip: int) -> tuple[Tensor, Tensor]:
        """An epoch's order, and what each step of it depends on: its share of the KL and the optimiser's numbers."""
        assert isinstance(self.examples, TensorExamples)
        order = self.examples.orders(self.plan.seed, epoch, self.method.members, self._device)
        size, n_data, table = self.plan.batch_size, self.examples.n_data, []
        for number in range(self.batches):
            own = min(size, n_data - number * size)
            rate, share = self._rate_and_share(epoch * self.batches + number, number, own)
            table.append(graphed.fused.numbers(share, rate, ahead=number - skip))
        return order, torch.tensor(table, dtype=graphed.fused.state[0].dtype)

    def _fuse(self, batch: list[Batch], bar: Any) -> None:
        plan, method, self._asked = self.plan, self.method, True
        wanted = plan.compiled
        if wanted is None:
            wanted = capturable(method) and worth_compiling(
                method.network.size * plan.draws, self.total_steps, self._device
            )
        if wanted:
            bar.set_description("compiling the step, once")
            if self._device.type == "cuda" and isinstance(self.examples, TensorExamples):
                # A fleet is made of methods, and those of this file.
                from bayesify.training.single import graphed_steps

                given = (method, self.optimizer, plan.draws, self.examples, plan.batch_size)
                self._graphed = graphed_steps(*given, batch)
                self._fused = None if self._graphed is None else self._graphed.fused
            else:
                self._graphed = self._apart(batch)
                fused = self._graphed and self._graphed.fused
                self._fused = fused or fused_step(method, self.optimizer, plan.draws, batch)
            bar.set_description(None)
        self.plan = method.plan = replace(plan, compiled=self._fused is not None)

    def _apart(self, batch: list[Batch]) -> StepsApart | None:
        if not isinstance(self.examples, TensorExamples):
            return None
        # An ensemble is a method, and methods are made of this file.
        from bayesify.training.apart import members_apart

        return members_apart(self.method, self.optimizer, self.examples, self.plan.batch_size, batch)

    def _step(self, batch: list[Batch], number: int, size: int) -> Tensor:
        method, step = self.method, self.progress.step
        self._set_rates(step)
        rate, share = self._rate_and_share(step, number, size)
        if self._fused is not None:
            return self._fused(batch, step, share, rate)
        self.optimizer.zero_grad(set_to_none=True)
        objective = method.backward(batch, step=step, share=share, draws=self.plan.draws)
        self.optimizer.step()
        method.absorb(objective)
        return objective.nll.detach()

    def _rate_and_share(self, step: int, number: int, size: int) -> tuple[float, float]:
        share = self.kl.share(number, self.batches, size, self.examples.n_data)
        rate = self.base_rates[0] * self.schedule(step / self.total_steps)
        return rate, share * self.kl.factor(step / self.batches)

    def _set_rates(self, step: int) -> None:
        """Tell the optimiser, which others look at, what this step's learning rates are."""
        factor = self.schedule(step / self.total_steps)
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor

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
        if snapshots.due(epoch, self.plan.epochs):
            record["weights"] = snapshots.weight_histograms(self.method)
        self.history.records.append(record)
        bar.set_postfix({k: f"{v:.4g}" for k, v in record.items() if k in {"loss", "nll", "validation_nll"}})
        progress.nll_sum = progress.seen = progress.seconds = 0.0
        self._judge(record, epoch)
        if epoch % self.plan.checkpoint_every == 0 or progress.done or progress.step >= self.total_steps:
            self.save_checkpoint()

    def _judge(self, record: dict[str, Any], epoch: int) -> None:
        if self.validation is None:
            return
        progress, plan = self.progress, self.plan
        if progress.best is None or record["validation_nll"] < progress.best:
            progress.best, progress.best_epoch = record["validation_nll"], epoch
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
