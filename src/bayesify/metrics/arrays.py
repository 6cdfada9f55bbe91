"""What every metric is given: tensors, arrays or lists, as float64 arrays whose shapes must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Numbers = Tensor | NDArray[Any] | Sequence[Any]


def paired(first: Numbers, second: Numbers, first_name: str, second_name: str) -> tuple[Floats, Floats]:
    """Both as flat arrays of one length, or a ValueError: shapes must agree but for dimensions of size 1."""
    a, b = as_array(first, first_name), as_array(second, second_name)
    if not alike(a.shape, b.shape):
        shapes = f"{list(a.shape)} and {list(b.shape)}"
        raise ValueError(f"{first_name} and {second_name} must have the same shape, got {shapes}")
    return a.reshape(-1), b.reshape(-1)


def as_array(values: Numbers, name: str) -> Floats:
    """Any tensor, array or list as float64, or a ValueError where it is empty or holds NaN."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
    if np.isnan(array).any():
        raise ValueError(f"{name} must not hold NaN, got {int(np.isnan(array).sum())} of {array.size}")
    return array


def alike(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether two shapes agree but for dimensions of size 1."""
    return [size for size in first if size != 1] == [size for size in second if size != 1]
