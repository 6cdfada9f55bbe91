"""Means over seeds with standard errors and t intervals, paired differences, and intervals of shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def estimate(values: Sequence[float]) -> dict[str, Any]:
    """The mean of values over seeds with its standard error and 95% t interval; of a single value the mean alone."""
    from scipy.special import stdtrit

    mean, count = fmean(values), len(values)
    if count < 2:
        return {"mean": mean, "values": list(values)}
    error = stdev(values) / math.sqrt(count)
    reach = float(stdtrit(count - 1, 0.975)) * error
    return {"mean": mean, "standard_error": error, "interval": [mean - reach, mean + reach], "values": list(values)}


def of_one_more(estimated: Mapping[str, Any]) -> tuple[float, float]:
    """The 95% prediction interval for the value of one more seed, with which a single published run is compared.

        mean ± t * sd * sqrt(1 + 1 / n)

    It is wider than the interval of the mean, which says where the average of many seeds lies.

    Args:
        estimated: what `estimate` gives, of at least two values.

    Returns:
        Its two ends.

    """
    from scipy.special import stdtrit

    count = len(estimated["values"])
    reach = float(stdtrit(count - 1, 0.975)) * stdev(estimated["values"]) * math.sqrt(1 + 1 / count)
    return estimated["mean"] - reach, estimated["mean"] + reach


def error_of_share(share: float, count: int) -> float:
    """The standard error of a share of `count` independent cases."""
    return math.sqrt(share * (1 - share) / count)


def wilson_intervals(successes: Any, trials: Any) -> tuple[Floats, Floats]:
    """The 95% intervals of shares `successes / trials`, `[n]` each (E. B. Wilson, Probable inference, 1927)."""
    from scipy.stats import binomtest

    intervals = [
        binomtest(round(float(count)), int(total)).proportion_ci(method="wilson")
        for count, total in zip(successes, trials, strict=True)
    ]
    return np.array([interval.low for interval in intervals]), np.array([interval.high for interval in intervals])


def paired(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """The difference first less second, seed by seed, so that what a seed does to both (data, start) cancels."""
    return estimate([a - b for a, b in zip(first, second, strict=True)])


def settled(difference: dict[str, Any]) -> int:
    """The sign of a difference whose 95% interval leaves out zero; otherwise 0."""
    low, high = difference.get("interval", (-1.0, 1.0))
    return 1 if low > 0 else -1 if high < 0 else 0


def settled_together(differences: Sequence[dict[str, Any]]) -> int:
    """How many of several differences are settled when all intervals together hold with 95% (Bonferroni)."""
    from scipy.special import stdtrit

    count = 0
    for difference in differences:
        seeds = len(difference["values"])
        if seeds > 1:
            reach = float(stdtrit(seeds - 1, 1 - 0.025 / len(differences))) * difference["standard_error"]
            count += abs(difference["mean"]) > reach
    return count


def settled_by_holm(differences: Sequence[Mapping[str, Any]], level: float = 0.05) -> list[int]:
    """The sign of each of several differences, or 0 where it may be chance given how many there are.

    S. Holm, A simple sequentially rejective multiple test procedure, 1979: with m differences, the one with the
    smallest p value is compared with `level / m`, the next with `level / (m - 1)` and so on, up to the first that is
    not significant. All signs together are right with a probability of at least `1 - level`, and no fewer remain than
    with Bonferroni's correction.

    Args:
        differences: what `estimate` gives of paired differences; one of a single seed has no p value.
        level: the chance that any of the signs is wrong.

    Returns:
        A sign or 0 for each difference, in their order.

    """
    p_values = [p_value(one) for one in differences]
    signs = [0] * len(p_values)
    for place, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if not p_values[number] <= level / (len(p_values) - place):
            break
        signs[number] = 1 if differences[number]["mean"] > 0 else -1
    return signs


def p_value(difference: Mapping[str, Any]) -> float:
    """The two-sided p value of a t test that an estimated difference is zero; 1 where one seed says nothing."""
    from scipy.special import stdtr

    count = len(difference["values"])
    if count < 2:
        return 1.0
    if difference["standard_error"] == 0:
        return 0.0 if difference["mean"] else 1.0
    return 2 * float(stdtr(count - 1, -abs(difference["mean"]) / difference["standard_error"]))


def written(estimated: dict[str, Any], form: str = ".3f", unit: str = "", times: float = 1.0) -> str:
    """An estimate as a page shows it: mean ± standard error."""
    error = f" ± {times * estimated['standard_error']:{form}}" if "standard_error" in estimated else ""
    return f"{times * estimated['mean']:{form}}{error}{unit}"


def signed(estimated: dict[str, Any], form: str = ".3f", unit: str = "", times: float = 1.0) -> str:
    """An estimated difference as a page shows it: its sign always, its standard error without one."""
    return f"{'-' if estimated['mean'] * times < 0 else '+'}" + written(
        estimated | {"mean": abs(estimated["mean"])}, form, unit, abs(times)
    )


def percent(estimated: dict[str, Any], digits: int = 2) -> str:
    """An estimated share as a percentage."""
    return written(estimated, f".{digits}f", "%", 100.0)


def between(estimated: dict[str, Any], form: str = "+.4f", times: float = 1.0) -> str:
    """An estimate's 95% interval in words."""
    if "interval" not in estimated:
        return "one seed: no interval"
    low, high = estimated["interval"]
    return f"95% interval {times * low:{form}} to {times * high:{form}}"


def over_images(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The difference first less second of losses `[seeds][images]`, image by image: its error over other images.

    The losses of one image are averaged over the seeds first, so that images are what is counted.
    """
    differences = [
        fmean(a) - fmean(b) for a, b in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True)
    ]
    return {name: value for name, value in estimate(differences).items() if name != "values"}


def sign_test(more: int, fewer: int) -> float:
    """The p-value that `more` and `fewer` changed images differ by chance alone (exact McNemar test)."""
    from scipy.stats import binomtest

    return float(binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
