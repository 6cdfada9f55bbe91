"""The loosest threshold whose selective error is at most a bound, by exact tests in a fixed order (Learn then Test).

Examples are ordered by certainty, the most certain first. Let `t` be the certainty of example `m + 1`. Given `t`, the
`m` examples above it are independent draws from the inputs that are more certain than `t`, so their number of errors
is `Binomial(m, R(t))`, with `R(t)` the selective error of accepting everything above `t`. The p-value of
`R(t) > max_error` is therefore

    P(Binomial(m, max_error) <= errors among the first m).

Thresholds are tested from strict to loose, and testing ends at the first one that is not rejected, so no correction for
their number is needed (Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive algorithms
to achieve risk control", 2021, arXiv:2110.01052). A sequence that starts with few examples often ends at once, by one
unlucky error. It starts at half of the examples; with many examples more sequences start at an eighth of them, a 32nd
and so on, and all have the same part of the error probability. The bound is exact where a stricter threshold does not
have a higher error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

# A sequence of tests starts at one of so many examples, the next at a quarter of these.
_FIRST, _NEXT = 2, 4
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
    """At how many accepted examples the sequences start, and the level of each test."""
    count = 1
    while examples // (_FIRST * _NEXT**count) >= smallest_sample(max_error, risk / (count + 1)):
        count += 1
    if count == 1:
        return [max(smallest_sample(max_error, risk), examples // _FIRST)], risk
    return [examples // (_FIRST * _NEXT**place) for place in reversed(range(count))], risk / count


def examples_needed(
    certainty: NDArray[np.floating], wrong: NDArray[np.bool_], max_error: float, risk: float
) -> int | None:
    """About how many examples like these would support a bound; None where this cannot be told from them.

    A sequence of tests passes where its first test does: at the same rate of errors among the most certain half,
    eighth and so on in a larger sample.
    """
    counts, errors = candidates(certainty, wrong)
    needed = []
    start = len(wrong) // _FIRST
    while start >= _FEW:
        place = int(np.searchsorted(counts, start))
        count, error = int(counts[place]), int(errors[place])
        # One error more than was seen: with none seen, the true rate is hardly zero.
        if error == 0 or (error + 1) / count < max_error:
            needed.append(_grown(len(wrong), count, error, max_error, risk))
        start //= _NEXT
    best = min(needed, default=math.inf)
    return None if best == math.inf else max(math.ceil(best), smallest_sample(max_error, risk))


def strictest(certainty: NDArray[np.floating], wrong: NDArray[np.bool_]) -> Accepted:
    """The fewest examples whose rate of errors `examples_needed` looks at."""
    counts, errors = candidates(certainty, wrong)
    start = len(wrong) // _FIRST
    while start // _NEXT >= _FEW:
        start //= _NEXT
    place = int(np.searchsorted(counts, start))
    return Accepted(int(counts[place]), int(errors[place]))


def _grown(examples: int, count: int, errors: int, max_error: float, risk: float) -> float:
    """The size of a sample with the same rate of errors among its first examples, at which these pass."""
    factor = 1.0
    while True:
        _, level = _starts(math.floor(factor * examples), max_error, risk)
        if scipy.stats.binom.cdf(math.ceil(factor * errors), math.floor(factor * count), max_error) <= level:
            return factor * examples
        factor *= 1.05
        if factor > 1e6:
            return math.inf


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
