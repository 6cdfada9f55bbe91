"""Wrong calls of `fit` in one clear line: `fit(x, y)`, `lr=`, and other names that people try first."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from bayesify.errors import nearest, plain_number

P = ParamSpec("P")
R = TypeVar("R")

# What other libraries call the arguments of `fit`.
OTHER_NAMES = {
    "lr": "learning_rate",
    "rate": "learning_rate",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "bs": "batch_size",
    "batchsize": "batch_size",
    "optim": "optimizer",
    "optimiser": "optimizer",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "val_data": "validation",
    "validation_data": "validation",
    "val": "validation",
    "verbose": "progress",
    "random_state": "seed",
    "samples_per_step": "draws",
    "num_samples": "draws",
    "beta": "kl",
    "early_stopping": "patience",
    "n": "n_data",
}


def takes_plain_numbers(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose arguments may be numbers of NumPy: it is called with Python numbers.

    Args:
        function: the function to decorate.

    Returns:
        The same function, which needs no checks of the types of NumPy.

    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*map(plain_number, args), **{name: plain_number(value) for name, value in kwargs.items()})

    return called


def explained_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a `fit` that takes its data as one argument and settings by name.

    Args:
        function: the method to decorate.

    Returns:
        The same function, which explains wrong calls in one line.

    """
    parameters = inspect.signature(function).parameters
    named = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    plain = takes_plain_numbers(function)
    open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > 2:
            raise TypeError("fit takes the data as one argument: fit((x, y), epochs=...), not fit(x, y)")
        if len(args) == 1 and not hasattr(args[0], "network"):
            raise TypeError("fit belongs to a method, not to its class: bf.Variational(net, 'categorical').fit((x, y))")
        if len(args) < 2 and "data" not in kwargs:
            raise TypeError("fit needs the data: fit((x, y), epochs=...)")
        for name in kwargs:
            meant = OTHER_NAMES.get(name)
            if name not in parameters and (not open_ended or meant in parameters):
                known = f"; use {meant}=" if meant in parameters else nearest(name, named)
                raise TypeError(f"fit has no argument {name!r}{known}")
        return plain(*args, **kwargs)

    return called
