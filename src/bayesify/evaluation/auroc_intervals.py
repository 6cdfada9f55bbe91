"""Intervals of an AUROC, and paired differences with their standard errors.

The variance is that of E. R. DeLong et al. (Comparing the areas under two or more correlated ROC curves, 1988):
with `a_i` the share of known examples that unknown example i outranks, and `b_j` the share of unknown examples
that outrank known example j, it is `var(a) / unknown + var(b) / known`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bayesify import metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.metrics import Floats, Numbers

_Z = 1.959964


def auroc_interval(known: Numbers, unknown: Numbers) -> tuple[float, float, float]:
    """The AUROC and its 95% interval, taken on the logit scale so that it stays within 0 and 1."""
    above, outranked = _placements(known, unknown)
    area = float(above.mean())
    error = _standard_error(above, outranked)
    if not 0 < area < 1:
        # Where the ranking is perfect the variance is zero: the interval is then that of three examples.
        room = min(1.0, 3.0 / min(len(above), len(outranked)))
        return (area, 1 - room, 1.0) if area == 1 else (area, 0.0, room)
    centre, half = math.log(area / (1 - area)), _Z * error / (area * (1 - area))
    return area, _logistic(centre - half), _logistic(centre + half)


def auroc_difference(
    known: Numbers, unknown: Numbers, other_known: Numbers, other_unknown: Numbers
) -> tuple[float, float]:
    """The first AUROC less the other's on the same examples, and its standard error."""
    above, outranked = _placements(known, unknown)
    other_above, other_outranked = _placements(other_known, other_unknown)
    if above.shape != other_above.shape or outranked.shape != other_outranked.shape:
        raise ValueError("a paired difference needs both methods' scores on the same examples")
    differences = above - other_above, outranked - other_outranked
    return float(differences[0].mean()), _standard_error(*differences)


def _placements(known: Numbers, unknown: Numbers) -> tuple[Floats, Floats]:
    first, second = metrics.as_array(known, "known").reshape(-1), metrics.as_array(unknown, "unknown").reshape(-1)
    return _share_below(second, np.sort(first)), 1.0 - _share_below(first, np.sort(second))


def _share_below(values: Floats, ordered: Floats) -> NDArray[np.float64]:
    # Ties count half.
    below, not_above = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return 0.5 * (below + not_above) / len(ordered)


def _standard_error(above: Floats, outranked: Floats) -> float:
    variances = [float(shares.var(ddof=1)) / len(shares) if len(shares) > 1 else 0.25 for shares in (above, outranked)]
    return math.sqrt(sum(variances))


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
