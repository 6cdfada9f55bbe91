"""Learning-rate schedules as functions of the share of training that is done, from a name, a function or torch.

A torch scheduler is run once in advance on an optimiser without data. Its learning rates are then known for every step,
so that a resumed run, a compiled step and a graph on a GPU follow it too. It makes one step per optimiser step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from bayesify.errors import first_line
from bayesify.training.light_optimizers import SGD
from bayesify.training.optimisation import rate_factor

_EXPECTED = (
    "schedule must be a name, a function of the share of training that is done (from 0 to 1), or a function that makes "
    "a torch scheduler for an optimiser"
)


def as_function(schedule: str | Callable[[Any], Any], optimizer: Optimizer, steps: int) -> Callable[[float], float]:
    """The factor of the learning rate as a function of the share of training that is done.

    Args:
        schedule: a name such as `cosine`; a function of that share; or a function that makes a torch scheduler, such as
            `lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=1000)`.
        optimizer: has the learning rates before the schedule.
        steps: optimiser steps of the whole training.

    Returns:
        The function.

    Raises:
        TypeError: `schedule` is none of these.
        ValueError: the scheduler needs a score, changes more than learning rates, or treats groups differently.

    """
    if isinstance(schedule, str):
        return lambda share: rate_factor(schedule, share)
    if not callable(schedule):
        raise TypeError(f"{_EXPECTED}, got {type(schedule).__name__}")
    try:
        number = isinstance(schedule(0.0), int | float)
    except Exception:  # noqa: BLE001 -- a maker of schedulers refuses a number in a way of its own
        number = False
    if number:
        return schedule
    table = _factors(schedule, optimizer, steps)
    return lambda share: table[min(round(share * steps), steps - 1)]


def _factors(make: Callable[[Any], Any], optimizer: Optimizer, steps: int) -> list[float]:
    """The factor of every step."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    stand_in = SGD([{"params": [torch.zeros((), requires_grad=True)], "lr": rate} for rate in rates], momentum=0.9)
    try:
        scheduler = make(stand_in)
    except Exception as problem:
        raise TypeError(f"{_EXPECTED}; it raised {type(problem).__name__}: {first_line(problem)}") from problem
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError(  # noqa: TRY004 -- it is a scheduler, of a kind that has no plan
            "schedule= cannot follow a score: ReduceLROnPlateau has no plan; use patience= or another scheduler"
        )
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(f"{_EXPECTED}; it returned {type(scheduler).__name__}")
    table = []
    for step in range(steps):
        factors = [float(group["lr"]) / rate for group, rate in zip(stand_in.param_groups, rates, strict=True)]
        if max(factors) - min(factors) > 1e-12:
            raise ValueError("the scheduler treats parameter groups differently: give them different lr= instead")
        table.append(factors[0])
        stand_in.step()
        try:
            scheduler.step()
        except Exception as problem:
            raise ValueError(
                f"schedule= must have a learning rate for each of the plan's {steps:,} steps, its "
                f"{type(scheduler).__name__} fails after step {step + 1:,}: {first_line(problem)}"
            ) from problem
        if any(group["momentum"] != 0.9 for group in stand_in.param_groups):
            raise ValueError("schedule= follows learning rates alone: give the scheduler cycle_momentum=False")
    return table
