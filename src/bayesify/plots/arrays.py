"""Numbers for plots: as float64 arrays, and an even selection where there are too many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def as_floats(values: Any) -> NDArray[np.float64]:
    """A tensor, array or list as float64."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
    return np.asarray(values, dtype=np.float64)


def evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers 0 to `count - 1`, evenly spaced, the first and the last among them."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def plane(
    points: NDArray[np.float64], resolution: int, margin: float
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """The sides and the points `[resolution**2, 2]` of a grid that reaches `margin` of the points' extent beyond them.

    Without points `[n, 2]` it is made from the square from -1 to 1.
    """
    low, high = (points.min(0), points.max(0)) if len(points) else (np.full(2, -1.0), np.full(2, 1.0))
    reach = np.maximum(high - low, 1e-6) * margin
    sides = [np.linspace(low[i] - reach[i], high[i] + reach[i], resolution) for i in (0, 1)]
    return sides, np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
