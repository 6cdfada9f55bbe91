"""The loosest threshold whose selective error is at most a bound, by exact tests in a fixed order (Learn then Test).

Examples are ordered by certainty, the most certain first. Let `t` be the certainty of example `m + 1`. Given `t`, the
`m` examples above it are independent draws from the inputs that are more certain than `t`, so their number of errors
is `Binomial(m, R(t))`, with `R(t)` the selective error of accepting everything above `t`. The p-value of
`R(t) > max_error` is therefore

    P(Binomial(m, max_error) <= errors among the first m).

Thresholds are tested from strict to loose, and testing ends at the first one that is not rejected, so no correction for
their number is needed (Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms
to achieve risk control", 2021, arXiv:2110.01052). A sequence that starts with few examples often ends at once, by one
unlucky error. It starts at half of the examples; with many examples a second sequence starts at an eighth of them, and
each has half of the error probability. The bound is exact where a stricter threshold does not have a higher error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

_FIRST, _SECOND = 2, 8
# Of fewer examples no rate of errors is worth naming.
_FEW = 20


@dataclass(frozen=True)
class Accepted:
    """The first `count` examples by certainty, `errors` of them wrong."""

    count: int
    errors: int


def smallest_sample(max_error: float, risk: float) -> int:
    """The number of accepted examples from which zero errors are enough evidence, `(1 - max_error)^m <= risk`."""
    return math.ceil(math.log(risk) / math.log1p(-max_error))


def loosest(
    certainty: NDArray[np.floating], wrong: NDArray[np.bool_], max_error: float, risk: float
) -> Accepted | None:
    """The most examples, by falling certainty, whose selective error is at most `max_error` with a given risk.

    Args:
        certainty: one number for each example, higher is more certain.
        wrong: whether each prediction is wrong.
        max_error: the bound.
        risk: the probability with which the guarantee may be broken, one minus the confidence.

    Returns:
        The accepted examples; None where no threshold passes.

    """
    counts, errors = candidates(certainty, wrong)
    starts, level = _starts(len(wrong), max_error, risk)
    passed = scipy.stats.binom.cdf(errors, counts, max_error) <= level
    best = None
    for start in starts:
        first = int(np.searchsorted(counts, start))
        tested = passed[first:]
        run = len(tested) if tested.all() else int(np.argmin(tested))
        if run and (best is None or counts[first + run - 1] > best.count):
            last = first + run - 1
            best = Accepted(int(counts[last]), int(errors[last]))
    return best


def candidates(
    certainty: NDArray[np.floating], wrong: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many examples a threshold can accept, and how many of them are wrong; equal certainties go together."""
    order = np.argsort(-certainty, kind="stable")
    ordered = certainty[order]
    ends = np.flatnonzero(np.append(ordered[:-1] > ordered[1:], True))
    return ends.astype(np.int64) + 1, np.cumsum(wrong[order], dtype=np.int64)[ends]


def _starts(examples: int, max_error: float, risk: float) -> tuple[list[int], float]:
    if examples // _SECOND >= smallest_sample(max_error, risk / 2):
        return [examples // _SECOND, examples // _FIRST], risk / 2
    return [max(smallest_sample(max_error, risk), examples // _FIRST)], risk


def examples_needed(
    certainty: NDArray[np.floating], wrong: NDArray[np.bool_], max_error: float, risk: float
) -> int | None:
    """About how many examples like these would support a bound; None where no number would.

    A sequence of tests passes where its first test does: at the same rate of errors among the most certain half, or
    the most certain eighth, in a larger sample.
    """
    counts, errors = candidates(certainty, wrong)
    best = math.inf
    for part in (_FIRST, _SECOND):
        place = int(np.searchsorted(counts, len(wrong) // part))
        count, error = int(counts[place]), int(errors[place])
        # One error more than was seen: with none seen, the true rate is hardly zero.
        if count < _FEW or (error > 0 and (error + 1) / count >= max_error):
            continue
        best = min(best, _factor(count, error, max_error, risk / 2) * len(wrong))
    fewest = smallest_sample(max_error, risk)
    return None if best == math.inf else max(math.ceil(best), fewest)


def _factor(count: int, errors: int, max_error: float, risk: float) -> float:
    """By how much a sample must grow, at the same rate of errors, until it passes."""
    factor = 1.0
    while scipy.stats.binom.cdf(math.ceil(factor * errors), math.floor(factor * count), max_error) > risk:
        factor *= 1.05
        if factor > 1e6:
            return math.inf
    return factor


def smallest_bound(certainty: NDArray[np.floating], wrong: NDArray[np.bool_], risk: float) -> float | None:
    """About the smallest error that these examples support."""
    low, high = 0.0, 0.5
    if loosest(certainty, wrong, high, risk) is None:
        return None
    for _ in range(12):
        middle = 0.5 * (low + high)
        passes = smallest_sample(middle, risk) <= len(wrong) and loosest(certainty, wrong, middle, risk) is not None
        low, high = (low, middle) if passes else (middle, high)
    return high


def upper_bound(count: int, errors: int, risk: float) -> float:
    """The one-sided bound of Clopper and Pearson for an error rate."""
    return 1.0 if errors >= count else float(scipy.stats.beta.ppf(1 - risk, errors + 1, count - errors))
