"""The plan, the progress and the history of a training run, all in JSON, so that a run can be repeated or resumed."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesify.errors import RunError, at_least, choose, counted, nearest, positive, take_plain_numbers, whole_number
from bayesify.runs import checkpoint
from bayesify.training.kl import KL
from bayesify.training.optimisation import OptimizerFactory, rate_factor
from bayesify.training.recovery import ON_NAN
from bayesify.training.warnings import brief

logger = logging.getLogger("bayesify")
# A name, a function of the share of training that is done, or one that makes a torch scheduler for an optimiser.
Schedule = str | Callable[[Any], Any]
CUSTOM = "custom"
# What `History.stopped` says where the method's deadline ended training.
TIME_OVER = "the time allowed is over"
_SHOWN = ("loss", "nll", "kl", "acceptance", "divergences", "validation_nll", "validation_error")


@dataclass(frozen=True)
class Plan:
    """The settings of a training run, as `fit` was given them; they can be written as JSON.

    Args:
        epochs: passes over the data.
        batch_size: examples per step.
        optimizer: name of an optimiser with its options, such as `sgd:momentum=0.9`, or `custom` for a user's function.
        learning_rate: of the optimiser, before the schedule; None where the method finds its step size.
        schedule: `constant`, `cosine`, `linear`, `step:SHARE,FACTOR`, or `custom` for a user's function.
        draws: weight draws per step.
        kl: weighting of the KL, in the text form of `KL`.
        seed: seed of the noise and of the order of the examples.
        patience: epochs without a better validation NLL after which training stops; None never stops early.
        keep: the weights kept at the end: of the `last` epoch, or of the `best` by validation NLL.
        validation_draws: posterior draws for each validation.
        checkpoint_every: epochs between checkpoints.
        compiled: whether the step is compiled; None decides at the first step.
        precision: of the training passes: `full`, that of the weights, or `bfloat16`.
        accumulate: parts in which the gradient of a step is computed.
        clip_norm: the largest norm of a step's gradient; None does not clip.
        ema: the decay of the running average of the weights that is kept in the end; None keeps the last weights.
        augment: `custom` where a function changes the inputs of each batch.
        rates: factors of the learning rate, by pattern of tensors or modules.
        recompute: patterns of the modules whose activations are computed again in the backward pass.
        on_nan: what happens where the loss stops being finite: `stop`, or `rollback` to the last good epoch, with half
            the learning rate.

    Raises:
        ValueError: if a setting is out of its range, with the name of the setting.

    Examples:
        >>> from bayesify.training import Plan
        >>> Plan(epochs=3, schedule="cosine").learning_rate
        0.001
        >>> Plan(epochs=0)
        Traceback (most recent call last):
        ValueError: epochs must be an integer of at least 1, got 0

    """

    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "adam"
    learning_rate: float | None = 1e-3
    schedule: str = "constant"
    draws: int = 1
    kl: str = "uniform"
    seed: int = 0
    patience: int | None = None
    keep: str = "last"
    validation_draws: int = 10
    checkpoint_every: int = 1
    compiled: bool | None = None
    precision: str = "full"
    accumulate: int = 1
    clip_norm: float | None = None
    ema: float | None = None
    augment: str | None = None
    rates: dict[str, float] | None = None
    recompute: list[str] | None = None
    on_nan: str = "stop"

    def __post_init__(self) -> None:
        take_plain_numbers(self)
        for name in ("epochs", "batch_size", "draws", "validation_draws", "checkpoint_every", "accumulate"):
            at_least(name, getattr(self, name), 1)
        if self.learning_rate is not None:
            positive("learning_rate", self.learning_rate)
        choose("keep", self.keep, ("last", "best"))
        choose("on_nan", self.on_nan, ON_NAN)
        whole_number("seed", self.seed)
        KL.parse(self.kl)
        if self.schedule != CUSTOM:
            rate_factor(self.schedule, 0.0)
        if self.patience is not None:
            at_least("patience", self.patience, 1)
        choose("precision", self.precision, ("full", "bfloat16"))
        if self.compiled is not None and not isinstance(self.compiled, bool):
            raise ValueError(f"compiled must be True, False or None, got {self.compiled!r}")
        if self.accumulate > self.batch_size:
            raise ValueError(f"accumulate must be at most batch_size, {self.batch_size}, got {self.accumulate}")
        if self.clip_norm is not None:
            positive("clip_norm", self.clip_norm)
        if self.ema is not None and not (isinstance(self.ema, int | float) and 0 < self.ema < 1):
            raise ValueError(f"ema must be a decay between 0 and 1, such as 0.999, got {self.ema!r}")


@dataclass
class Progress:
    """Where a training run is; checkpoints hold it next to the tensors.

    Args:
        step: steps made so far.
        seen: examples seen in the current epoch.
        nll_sum: sum of their NLLs.
        seconds: time spent in the current epoch.
        best: best validation NLL so far.
        best_epoch: epoch of the best validation NLL.
        done: whether training stopped early.
        rollbacks: how often training went back to a good epoch; each halved the learning rate.
        failed: the last epoch that was rolled back.

    """

    step: int = 0
    seen: float = 0.0
    nll_sum: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    done: bool = False
    rollbacks: int = 0
    failed: int = 0


@dataclass(repr=False)
class History:
    """What each epoch of a training run recorded; `history["nll"]` is one column.

    Args:
        records: one dictionary per epoch: `epoch`, `step`, `loss`, `nll`, `kl`, `learning_rate`, `seconds`, and with
            validation data `validation_nll`; in some epochs also `weights`, histograms of the weights. Variational and
            IVON also record `elbo`, in nats over all N examples: `-N * nll - kl`, with the whole KL at any temperature.
        stopped: why training stopped early; empty where it did not.
        method: name of the method that was trained.

    Examples:
        >>> history = bnn.history
        >>> len(history), history["epoch"]
        (5, [1, 2, 3, 4, 5])
        >>> history["nll"][-1] < history["nll"][0]
        True
        >>> "elbo" in history, "accuracy" in history
        (True, False)

    """

    records: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""
    method: str = field(default="", compare=False)

    @property
    def stopped_early(self) -> bool:
        """Whether training ended before its plan because more of it promised nothing, and not for lack of time."""
        return bool(self.stopped) and self.stopped != TIME_OVER

    def __repr__(self) -> str:
        # The records hold histograms of every layer, which would fill a notebook's page.
        last = self.records[-1] if self.records else {}
        number, unit = (last["step"], "iteration") if "phase" in last else (last.get("epoch", 0), "epoch")
        done = counted(number, unit)
        numbers = [f"{name} {brief(last[name])}" for name in _SHOWN if last.get(name) is not None]
        stopped = [f"stopped early: {self.stopped}"] if self.stopped else []
        of_method = f" of {self.method}" if self.method else ""
        return f"<History{of_method}: {', '.join([done, *numbers, *stopped])}>"

    def _repr_html_(self) -> str:
        from bayesify.html import html_table

        names = [
            name for name in ("epoch", "step", *_SHOWN) if any(record.get(name) is not None for record in self.records)
        ]
        # The first epoch, and the last ones.
        shown = self.records if len(self.records) <= 10 else [self.records[0], *self.records[-9:]]
        rows = [[record.get(name) for name in names] for record in shown]
        return html_table(repr(self), names, rows, f"stopped early: {self.stopped}" if self.stopped else "")

    def __getitem__(self, name: str) -> list[Any]:
        """One value per epoch of the column `name`; None where an epoch did not record it.

        Raises:
            KeyError: no epoch recorded it: a point estimate has no `elbo`, a training without validation data no
                `validation_nll`. `name in history` asks.
            TypeError: `name` is no text.

        """
        if not isinstance(name, str):
            raise TypeError(f"a column of the history has a name, such as 'nll', got {name!r}: epochs are in .records")
        recorded = dict.fromkeys(key for record in self.records for key in record)
        if self.records and name not in recorded:
            raise KeyError(f"no epoch recorded the column {name!r}{nearest(name, recorded)}")
        return [record.get(name) for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The records, one dictionary per epoch."""
        return iter(self.records)

    def __contains__(self, name: object) -> bool:
        """Whether an epoch recorded a number in the column `name`."""
        return isinstance(name, str) and any(record.get(name) is not None for record in self.records)

    def to_jsonl(self) -> str:
        """The records as text, one line of JSON per epoch."""
        return "".join(json.dumps(record) + "\n" for record in self.records)


def extended(plan: Plan, more: int, state: dict[str, Any]) -> Plan:
    """The same plan with more epochs; the learning-rate schedule is stretched over the new length.

    A run that is done is opened again. A run that stopped early goes on from the epoch where it stopped, and its
    patience counts from there.

    Args:
        plan: the plan of the run.
        more: epochs to add.
        state: the state of the run's checkpoint, which is changed.

    Returns:
        The longer plan.

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


def resume_plan(
    run: Path, plan_type: type[Any] = Plan, *, tensors: bool = True
) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """Read the checkpoint of a run.

    Args:
        run: the run folder.
        plan_type: class of the plan; HMC has its own.
        tensors: False leaves the tensors out.

    Returns:
        The plan, the tensors by name, and the state.

    Raises:
        RunError: if there is no checkpoint that this version can read.

    """
    found, state = checkpoint.read(run) if tensors else ({}, checkpoint.read_state(run))
    try:
        return plan_type(**state["plan"]), found, state
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise RunError(f"the checkpoint in {run} was written by another version: {problem}") from None


def make_plan(
    optimizer: str | OptimizerFactory, schedule: Schedule, kl: str | KL, settings: dict[str, Any]
) -> tuple[Plan, OptimizerFactory | None, Callable[[Any], Any] | None]:
    """Split the arguments of `fit` into a plan, which JSON can hold, and the user's functions.

    Args:
        optimizer: name of an optimiser, or a function `(parameters, lr=) -> Optimizer`.
        schedule: name of a schedule, a function of the share of training that is done, or a maker of torch schedulers.
        kl: weighting of the KL.
        settings: the other fields of `Plan`.

    Returns:
        The plan, the optimiser function or None, and the schedule function or None.

    """
    user_optimizer = None if isinstance(optimizer, str) else optimizer
    user_schedule = None if isinstance(schedule, str) else schedule
    plan = Plan(
        optimizer=optimizer if isinstance(optimizer, str) else CUSTOM,
        schedule=schedule if isinstance(schedule, str) else CUSTOM,
        kl=str(KL.parse(kl)),
        **copy.copy(settings),
    )
    return plan, user_optimizer, user_schedule
