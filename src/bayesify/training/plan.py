"""What training is to do and what it showed: data that JSON can hold, so that a run can be repeated or continued."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesify.errors import RunError, at_least, choose, positive, whole_number
from bayesify.runs import STATE, checkpoint
from bayesify.training.kl import KL
from bayesify.training.optimisation import OptimizerFactory, rate_factor
from bayesify.training.warnings import brief

logger = logging.getLogger("bayesify")
Schedule = str | Callable[[float], float]
CUSTOM = "custom"
_SHOWN = ("loss", "nll", "kl", "acceptance", "divergences", "validation_nll", "validation_error")


@dataclass(frozen=True)
class Plan:
    """Everything that decides how training goes; JSON-able, so that a run can be continued or repeated."""

    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    draws: int = 1
    kl: str = "uniform"
    seed: int = 0
    patience: int | None = None
    keep: str = "last"
    validation_draws: int = 10
    checkpoint_every: int = 1
    compiled: bool | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "draws", "validation_draws", "checkpoint_every"):
            at_least(name, getattr(self, name), 1)
        positive("learning_rate", self.learning_rate)
        choose("keep", self.keep, ("last", "best"))
        whole_number("seed", self.seed)
        KL.parse(self.kl)
        if self.schedule != CUSTOM:
            rate_factor(self.schedule, 0.0)
        if self.patience is not None:
            at_least("patience", self.patience, 1)


@dataclass
class Progress:
    """Where training is: kept in checkpoints next to the tensors."""

    step: int = 0
    seen: float = 0.0
    nll_sum: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    done: bool = False


@dataclass(repr=False)
class History:
    """What each epoch showed: a list of records, and a column by name; whose history it is, where that is known."""

    records: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""
    method: str = field(default="", compare=False)

    def __repr__(self) -> str:
        # The records hold histograms of every layer: a notebook that shows them all shows nothing else.
        last = self.records[-1] if self.records else {}
        number, what = (last["step"], "iteration") if "phase" in last else (last.get("epoch", 0), "epoch")
        done = f"{number:,} {what}{'' if number == 1 else 's'}"
        numbers = [f"{name} {brief(last[name])}" for name in _SHOWN if last.get(name) is not None]
        stopped = [f"stopped early: {self.stopped}"] if self.stopped else []
        whose = f" of {self.method}" if self.method else ""
        return f"<History{whose}: {', '.join([done, *numbers, *stopped])}>"

    def __getitem__(self, name: str) -> list[Any]:
        return [record.get(name) for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def to_jsonl(self) -> str:
        return "".join(json.dumps(record) + "\n" for record in self.records)


def extended(plan: Plan, more: int, state: dict[str, Any]) -> Plan:
    """The same plan with more epochs; a schedule, a function of the share done, is stretched over the new length.

    The state of a run that is over is opened again. One that stopped early goes on from there: the epochs that it did
    not need are not made up for, and its patience begins anew.
    """
    progress = state["progress"]
    if progress["done"]:
        stopped = state["history"][-1]["epoch"]
        plan = replace(plan, epochs=stopped)
        progress |= {"done": False, "best_epoch": stopped}
        state["stopped"] = ""
    longer = Plan(**{**asdict(plan), "epochs": plan.epochs + at_least("extend", more, 1)})
    logger.info(
        "extended from %d to %d epochs: the %s schedule is now spread over %d",
        plan.epochs,
        longer.epochs,
        plan.schedule,
        longer.epochs,
    )
    return longer


def resume_plan(run: Path, plan_type: type[Any] = Plan) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """The plan (of the method's own type), tensors and state that a run's checkpoint holds."""
    tensors, state = checkpoint.read(run / STATE)
    try:
        return plan_type(**state["plan"]), tensors, state
    except (KeyError, TypeError) as problem:
        raise RunError(f"the checkpoint in {run} was written by another version: {problem}") from None


def make_plan(
    optimizer: str | OptimizerFactory, schedule: Schedule, kl: str | KL, settings: dict[str, Any]
) -> tuple[Plan, OptimizerFactory | None, Callable[[float], float] | None]:
    """Split what `fit` was given into a JSON-able plan and the user's own functions."""
    own_optimizer = None if isinstance(optimizer, str) else optimizer
    own_schedule = None if isinstance(schedule, str) else schedule
    plan = Plan(
        optimizer=optimizer if isinstance(optimizer, str) else CUSTOM,
        schedule=schedule if isinstance(schedule, str) else CUSTOM,
        kl=str(KL.parse(kl)),
        **copy.copy(settings),
    )
    return plan, own_optimizer, own_schedule
