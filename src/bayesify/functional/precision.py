"""The precision of passes: that of the weights, or bfloat16 where it is faster.

bfloat16 keeps 8 significant bits, so a sum of products is off by a few parts in a thousand. On most GPUs it halves the
time. On many CPUs it is slower than float32, or missing. Therefore a product is timed, once for each device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from bayesify.errors import choose

PRECISIONS = ("full", "bfloat16", "auto")
_SIDE, _REPEATS = 768, 5
# The gain must exceed the noise of timings by far, because the loss of digits is certain.
_WORTH = 0.8


@contextmanager
def passes_in(precision: str, device: torch.device, dtype: torch.dtype) -> Iterator[str]:
    """Make the passes inside this context in a given precision.

    Args:
        precision: `full`, that of the weights; `bfloat16`; or `auto`, bfloat16 where a probe finds it faster.
        device: of the passes.
        dtype: of the weights; `auto` chooses bfloat16 for float32 weights only.

    Yields:
        The precision chosen, `full` or `bfloat16`.

    """
    chosen = decided(precision, device, dtype)
    with torch.autocast(device.type, torch.bfloat16, enabled=chosen == "bfloat16"):
        yield chosen


def decided(precision: str, device: torch.device, dtype: torch.dtype) -> str:
    """The precision that `passes_in` chooses: `full` or `bfloat16`."""
    chosen = choose("precision", precision, PRECISIONS)
    if chosen == "bfloat16" and time_ratio(device) is None:
        raise ValueError(f"precision bfloat16 is not supported on {device}: use 'full' or 'auto'")
    if chosen == "auto":
        ratio = time_ratio(device) if dtype == torch.float32 else None
        chosen = "bfloat16" if ratio is not None and ratio < _WORTH else "full"
    return chosen


@cache
def time_ratio(device: torch.device) -> float | None:
    """The time of a matrix product in bfloat16 over that in float32; None where bfloat16 fails or is wrong."""
    try:
        full = torch.linspace(-1.0, 1.0, _SIDE * _SIDE, device=device).view(_SIDE, _SIDE).sin()
        half = full.to(torch.bfloat16)
        error = (half @ half).float() - full @ full
        if not bool(error.abs().max() < 1e-2 * _SIDE):
            return None
        times: dict[torch.dtype, float] = {}
        for matrix in (full, half) * _REPEATS:
            elapsed = _time(matrix)
            times[matrix.dtype] = min(elapsed, times.get(matrix.dtype, elapsed))
        return times[torch.bfloat16] / times[torch.float32]
    except (RuntimeError, NotImplementedError):  # such as "could not create a primitive"
        return None


def _time(matrix: torch.Tensor) -> float:
    _wait(matrix.device)
    began = time.perf_counter()
    matrix @ matrix
    _wait(matrix.device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
