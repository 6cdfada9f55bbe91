"""How things are timed against each other: short turns, one after the other, and the median over many rounds.

    spread    median and quartiles over rounds
    ratio     median / median, with the quartiles of the ratios within each round
    slope     of log y on log x by least squares: 1 is linear growth, less is better than linear

Whatever slows the machine for a moment hits everyone that takes turns in that moment, so a round's ratio hardly moves.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bayesify.errors import at_least

Progress = Callable[[str], None]
Candidates = Mapping[str, Callable[[], Any]]
# A turn shorter than this measures the clock and the wake-up of threads as much as the work.
SECONDS_PER_TURN = 0.03
_MOST_CALLS = 200


def silent(_: str) -> None:
    """Progress that nobody watches."""


def take_turns(
    candidates: Candidates,
    *,
    rounds: int,
    steps: int | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> dict[str, list[float]]:
    """Milliseconds per call of each candidate in each round, `{name: [rounds]}`.

    Every candidate is called before the first round, which is not counted. With `steps` None each gets as many calls a
    turn as fill `SECONDS_PER_TURN`.
    """
    at_least("rounds", rounds, 1)
    if steps is not None:
        at_least("steps", steps, 1)
    calls = {}
    for name, step in candidates.items():
        progress(f"warming up: {name}")
        milliseconds_per_call(step, 2, device)
        calls[name] = steps or calls_for(milliseconds_per_call(step, 1, device))
    timings: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for name, step in candidates.items():
            timings[name].append(milliseconds_per_call(step, calls[name], device))
    return timings


def made_anew(
    make: Callable[[], Candidates], times: int, *, rounds: int, progress: Progress = silent, **turns: Any
) -> dict[str, list[float]]:
    """`take_turns` with candidates that are made so many times, with a share of the rounds each.

    Where tensors happen to lie in memory makes a step up to half as long again.
    """
    times = min(at_least("times", times, 1), at_least("rounds", rounds, 1))
    timings: dict[str, list[float]] = {}
    for _ in range(times):
        progress("compiling")
        for name, values in take_turns(make(), rounds=-(-rounds // times), progress=progress, **turns).items():
            timings.setdefault(name, []).extend(values)
    return timings


def milliseconds_per_call(step: Callable[[], Any], calls: int, device: str = "cpu") -> float:
    """The mean over some calls, everything that they started on the device included."""
    wait_for(device)
    began = time.perf_counter()
    for _ in range(calls):
        step()
    wait_for(device)
    return (time.perf_counter() - began) / calls * 1e3


def calls_for(milliseconds: float) -> int:
    """How many calls of this length fill a turn."""
    return max(1, min(_MOST_CALLS, math.ceil(SECONDS_PER_TURN * 1e3 / max(milliseconds, 1e-6))))


def wait_for(device: str) -> None:
    """Until everything that was started on the device is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The median and the quartiles."""
    return {"median": statistics.median(values), "quartiles": quartiles(values)}


def ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """How many times as long, with the quartiles of the ratios round by round."""
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {"ratio": statistics.median(over) / statistics.median(under), "quartiles": quartiles(each)}


def quartiles(values: Sequence[float]) -> list[float]:
    """The first and the third, by linear interpolation between the sorted values."""
    if len(values) == 1:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of y = c x^slope, by least squares on logarithms."""
    if len(set(x)) < 2:
        raise ValueError(f"a slope needs at least two different sizes, got {sorted(set(x))}")
    return float(statistics.linear_regression([math.log(v) for v in x], [math.log(v) for v in y]).slope)
