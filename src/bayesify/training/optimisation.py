"""Optimisers and learning-rate schedules, from a name, a text form or a function.

A named schedule is a pure function of the share of training that is done, so resuming needs no state.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from bayesify.errors import nearest, positive
from bayesify.training.light_optimizers import SGD, Adam, AdamW, LightOptimizer

OptimizerFactory = Callable[..., Optimizer]
_WARM_UP = ",warm-up="
SCHEDULES = ("constant", "cosine", "linear", "step")


def make_optimizer(
    given: str | OptimizerFactory, parameters: Iterable[torch.nn.Parameter], learning_rate: float
) -> Optimizer:
    """Make an optimiser.

    Args:
        given: a name of torch's optimisers (`adam`), a name with options (`sgd:momentum=0.9`), or a function
            `(parameters, lr=) -> Optimizer`.
        parameters: what it trains.
        learning_rate: its learning rate.

    Returns:
        The optimiser.

    Raises:
        ValueError: for an unknown name or option.
        TypeError: if the function returns something other than an optimiser.

    """
    parameters = list(parameters)
    learning_rate = positive("learning_rate", learning_rate)
    if not callable(given) and not isinstance(given, str):
        raise TypeError(
            f"optimizer must be a name such as 'adam', or a class or function (parameters, lr=) that makes one, got an "
            f"object of {type(given).__name__}: the parameters are those of the method"
        )
    if not isinstance(given, str):
        _check_factory(given, parameters, learning_rate)
        optimizer = given(parameters, lr=learning_rate)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"the optimizer factory returned {type(optimizer).__name__}, not a torch optimizer")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError("optimizer must step without a closure, LBFGS needs one: use another optimiser")
        return optimizer
    name, _, text = given.partition(":")
    known = _known_optimizers()
    if name not in known:
        raise ValueError(f"unknown optimizer {name!r}{nearest(name, known)}")
    options = dict(_option(option) for option in text.split(",") if option)
    kind = known[name]
    if issubclass(kind, LightOptimizer) and all(p.device.type in {"cpu", "cuda"} for p in parameters):
        options.setdefault("fused", True)
    try:
        made: Optimizer = kind(parameters, lr=learning_rate, **options)
    except TypeError as problem:
        raise ValueError(f"optimizer {given!r}: {problem}") from None
    return made


def rate_factor(schedule: str, progress: float) -> float:
    """The factor of the learning rate at some point of training.

    Args:
        schedule: `constant`; `cosine`, down to zero (Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with
            Warm Restarts", 2017, arXiv:1608.03983); `linear`, down to zero; or `step:0.5,0.1`, a tenth after half of
            the steps. Each may end in `,warm-up=0.05`: the rate then grows from a hundredth of itself over this share
            of the steps.
        progress: the share of all steps that is done, from 0 to 1.

    Returns:
        What multiplies the learning rate.

    Raises:
        ValueError: for an unknown schedule.

    """
    schedule, comma, share = schedule.partition(_WARM_UP)
    if comma:
        return rate_factor(schedule, progress) * _warm_up(schedule + comma + share, share, progress)
    name, _, text = schedule.partition(":")
    if name == "constant" and not text:
        return 1.0
    if name == "cosine" and not text:
        return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
    if name == "linear" and not text:
        return max(0.0, 1.0 - progress)
    if name == "step":
        try:
            at, factor = (float(number) for number in text.split(","))
        except ValueError:
            raise ValueError(f"schedule {schedule!r} must read step:SHARE,FACTOR, as in step:0.5,0.1") from None
        return factor if progress >= at else 1.0
    raise ValueError(f"unknown schedule {schedule!r}{nearest(name, SCHEDULES)}")


def _warm_up(schedule: str, text: str, progress: float) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError(f"schedule {schedule!r} must end in warm-up=SHARE, a share of the steps between 0 and 1")
    return min(1.0, 0.01 + 0.99 * progress / share)


def _check_factory(given: OptimizerFactory, parameters: list[torch.nn.Parameter], learning_rate: float) -> None:
    """Refuse a function that cannot be called as `given(parameters, lr=learning_rate)`."""
    try:
        inspect.signature(given).bind(parameters, lr=learning_rate)
    except TypeError as problem:
        raise TypeError(
            f"optimizer must be a name, or a class or function (parameters, lr=) that makes one, got a function that "
            f"cannot be called so ({problem}): write lambda parameters, lr: ..."
        ) from None
    except ValueError:  # a function of C has no signature
        return


def _known_optimizers() -> dict[str, Any]:
    return {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer and name != "LBFGS"
    } | {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def _option(option: str) -> tuple[str, Any]:
    name, _, value = option.partition("=")
    words = {"true": True, "false": False}
    if value.lower() in words:
        return name.strip(), words[value.lower()]
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ValueError(f"optimizer option {option!r} must read NAME=NUMBER") from None
