"""Means over seeds with what can be said of them: standard errors, t intervals, paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any


def estimate(values: Sequence[float]) -> dict[str, Any]:
    """The mean of values over seeds, its standard error and 95% t interval, which one value cannot tell."""
    from scipy.special import stdtrit

    mean, count = fmean(values), len(values)
    if count < 2:
        return {"mean": mean, "values": list(values)}
    error = stdev(values) / math.sqrt(count)
    reach = float(stdtrit(count - 1, 0.975)) * error
    return {"mean": mean, "standard_error": error, "interval": [mean - reach, mean + reach], "values": list(values)}


def error_of_share(share: float, count: int) -> float:
    """The standard error of a share of so many independent cases."""
    return math.sqrt(share * (1 - share) / count)


def paired(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """The difference first less second, seed by seed: what both share (data, start) does not blur it."""
    return estimate([a - b for a, b in zip(first, second, strict=True)])


def settled(difference: dict[str, Any]) -> int:
    """The sign of a difference whose 95% interval leaves out zero; otherwise 0."""
    low, high = difference.get("interval", (-1.0, 1.0))
    return 1 if low > 0 else -1 if high < 0 else 0


def settled_together(differences: Sequence[dict[str, Any]]) -> int:
    """How many of several differences are settled when all intervals together hold with 95% (Bonferroni)."""
    from scipy.special import stdtrit

    count = 0
    for one in differences:
        seeds = len(one["values"])
        if seeds > 1:
            reach = float(stdtrit(seeds - 1, 1 - 0.025 / len(differences))) * one["standard_error"]
            count += abs(one["mean"]) > reach
    return count


def written(found: dict[str, Any], form: str = ".3f", unit: str = "", times: float = 1.0) -> str:
    """An estimate as a page shows it: mean ± standard error."""
    error = f" ± {times * found['standard_error']:{form}}" if "standard_error" in found else ""
    return f"{times * found['mean']:{form}}{error}{unit}"


def signed(found: dict[str, Any], form: str = ".3f", unit: str = "", times: float = 1.0) -> str:
    """An estimated difference as a page shows it: its sign always, its standard error without one."""
    return f"{'-' if found['mean'] * times < 0 else '+'}" + written(
        found | {"mean": abs(found["mean"])}, form, unit, abs(times)
    )


def percent(found: dict[str, Any], digits: int = 2) -> str:
    """An estimated share as a percentage."""
    return written(found, f".{digits}f", "%", 100.0)


def between(found: dict[str, Any], form: str = "+.4f", times: float = 1.0) -> str:
    """An estimate's 95% interval in words."""
    if "interval" not in found:
        return "one seed: no interval"
    low, high = found["interval"]
    return f"95% interval {times * low:{form}} to {times * high:{form}}"


def over_images(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The difference first less second of losses `[seeds][images]`, image by image: what other images might have said.

    The losses of one image are averaged over the seeds first, so that images are what is counted.
    """
    differences = [
        fmean(a) - fmean(b) for a, b in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True)
    ]
    return {name: value for name, value in estimate(differences).items() if name != "values"}


def sign_test(more: int, fewer: int) -> float:
    """The chance of so uneven a split of images that changed sides, were both sides alike (exact McNemar test)."""
    from scipy.stats import binomtest

    return float(binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
