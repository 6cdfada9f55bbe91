"""Compiling a pass where that pays and works, and the same pass uncompiled where it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger("bayesify")

# A compilation costs seconds; an uncompiled step costs about ten nanoseconds per weight more (on two cores, the
# difference between `bayesify bench step` and `bayesify bench step --eager`).
_SECONDS_TO_COMPILE = 15.0
_SECONDS_PER_WEIGHT = 1e-8
# One code object serves every prior, width and number of draws: each is a compilation of its own.
_VARIANTS = 64


def worth_compiling(weights: int, steps: int) -> bool:
    """Whether the time saved over all steps exceeds the time that compiling takes."""
    return weights * steps * _SECONDS_PER_WEIGHT > _SECONDS_TO_COMPILE


def compiled_or_eager(
    function: Callable[..., Any], example: tuple[Any, ...], *, wanted: bool
) -> tuple[Callable[..., Any], bool]:
    """The compiled function if it is wanted and works here, otherwise the function itself; and which it is."""
    if not wanted:
        return function, False
    try:
        from torch._dynamo import config

        config.recompile_limit = max(config.recompile_limit, _VARIANTS)
        compiled = torch.compile(function, dynamic=False, fullgraph=True)
        compiled(*example)
    except Exception as problem:  # noqa: BLE001 -- no compiler, an unsupported platform: the plain path is the same numbers
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        logger.warning("not compiled (%s): the plain path is used", reason[:120])
        return function, False
    return compiled, True
