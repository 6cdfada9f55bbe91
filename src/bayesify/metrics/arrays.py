"""The arguments of every metric: tensors, arrays or lists, as float64 arrays whose shapes must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Numbers = Tensor | NDArray[Any] | Sequence[Any]


def paired(first: Numbers, second: Numbers, first_name: str, second_name: str) -> tuple[Floats, Floats]:
    """Two arguments as flat arrays of the same length.

    Args:
        first: a tensor, array or list of numbers.
        second: another one; its shape must equal the first one's, apart from dimensions of size 1.
        first_name: the name of the first argument, for errors.
        second_name: the name of the second argument, for errors.

    Returns:
        Both as float64 arrays, `[n]`.

    Raises:
        ValueError: the shapes differ, or an argument is empty or holds NaN.

    Examples:
        >>> bf.metrics.paired(torch.zeros(2, 1), [1, 2], "mean", "targets")
        (array([0., 0.]), array([1., 2.]))

    """
    a, b = as_array(first, first_name), as_array(second, second_name)
    if not same_shape(a.shape, b.shape):
        shapes = f"{list(a.shape)} and {list(b.shape)}"
        raise ValueError(f"{first_name} and {second_name} must have the same shape, got {shapes}")
    return a.reshape(-1), b.reshape(-1)


def as_array(values: Numbers, name: str) -> Floats:
    """A tensor, array or list as a float64 array.

    Args:
        values: the numbers, of any shape.
        name: the name of the argument, for errors.

    Returns:
        A float64 array of the same shape.

    Raises:
        ValueError: `values` is empty or holds NaN.

    Examples:
        >>> bf.metrics.as_array(torch.tensor([1, 2]), "targets")
        array([1., 2.])

    """
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
    if np.isnan(array).any():
        raise ValueError(f"{name} must not hold NaN, got {int(np.isnan(array).sum())} of {array.size}")
    return array


def same_shape(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether two shapes are the same, apart from dimensions of size 1."""
    return [size for size in first if size != 1] == [size for size in second if size != 1]
