"""A data set from a file of named arrays: `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesify.data.columns import Column
from bayesify.data.dataset import DataSet, assemble
from bayesify.data.errors import DataError
from bayesify.data.formats import read_arrays
from bayesify.data.targets import Targets, read_targets

Array = NDArray[np.generic]


def from_npz(path: str | Path, *, kind: str | None = None, test: float = 0.2, seed: int = 0) -> DataSet:
    """A data set from a file of named arrays, such as an .npz archive.

    The file has `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`, and perhaps `class_names`; capital letters
    are allowed. Inputs are `[n, features]`, or images `[n, height, width]`, `[n, channels, height, width]` or
    `[n, height, width, channels]`. Targets are `[n]`. Archives with Python objects are an error.

    Args:
        path: the file.
        kind: "classification" or "regression"; by default found from the targets.
        test: share (a float) or number (an int) of test examples, where the file has no test part.
        seed: the seed of that split.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the file is damaged, or its arrays do not make a data set.

    Examples:
        >>> np.savez("mine.npz", x=x.numpy(), y=y.numpy())
        >>> dataset = bf.data.from_npz("mine.npz", test=10)
        >>> dataset.kind, dataset.x_train.shape, dataset.x_test.shape
        ('classification', torch.Size([50, 2]), torch.Size([10, 2]))

    """
    path = Path(path)
    arrays = {name.lower(): array for name, array in read_arrays(path).items()}
    whole = {"x", "y"} <= set(arrays)
    if whole and {"x_test", "y_test"} <= set(arrays) and not {"x_train", "y_train"} & set(arrays):
        # With x_test and y_test in the file, x and y are the training part.
        arrays["x_train"], arrays["y_train"], whole = arrays.pop("x"), arrays.pop("y"), False
    halves = {"x_train", "y_train", "x_test", "y_test"}
    if not whole and not halves <= set(arrays):
        names = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"{path}: expected arrays x and y, or x_train, y_train, x_test and y_test; found {names}")
    parts = [("x", "y")] if whole else [("x_train", "y_train"), ("x_test", "y_test")]
    pairs = [_pair(path, arrays, x, y) for x, y in parts]
    if len({inputs.shape[1:] for inputs, _ in pairs}) > 1:
        shapes = " and ".join(str(list(inputs.shape[1:])) for inputs, _ in pairs)
        raise DataError(f"{path}: training and test examples must have the same shape, got {shapes}")
    x = torch.from_numpy(np.concatenate([inputs for inputs, _ in pairs]))
    labels = np.concatenate([labels for _, labels in pairs])
    targets = _targets(path, labels, arrays.get("class_names"), kind)
    first = len(pairs[0][1])
    rows = (torch.arange(first), torch.arange(first, len(x)))
    images = x.dim() > 2
    return assemble(
        path.stem,
        targets.kind,
        x,
        targets.y,
        test=test if whole else rows,
        seed=seed,
        maximum=_maximum(x) if images else None,
        class_names=targets.class_names,
        columns=() if images else tuple(Column(f"x{number + 1}") for number in range(x.shape[1])),
        source=str(path),
    )


def _pair(path: Path, arrays: dict[str, Array], x_name: str, y_name: str) -> tuple[Array, Array]:
    x, y = arrays[x_name], arrays[y_name]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{path}: {y_name} must be one target per example, [n], got shape {list(y.shape)}")
    if x.ndim < 1 or len(x) != len(y):
        raise DataError(f"{path}: {x_name} must have one example per target, got {list(x.shape)} for {len(y)} targets")
    if len(x) == 0:
        raise DataError(f"{path}: {x_name} is empty")
    for name, array, kinds in ((x_name, x, "biuf"), (y_name, y, "biufU")):
        if array.dtype.kind not in kinds:
            raise DataError(f"{path}: {name} must hold numbers, got {array.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))[0])
            raise DataError(f"{path}: {name} has NaN or infinity, first in row {row}")
    return _inputs(path, x_name, x), y


def _inputs(path: Path, name: str, x: Array) -> Array:
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim > 4:
        raise DataError(f"{path}: {name} must be a table or images, got shape {list(x.shape)}")
    if x.ndim == 4 and x.shape[-1] in {1, 3} and x.shape[1] not in {1, 3}:
        x = np.moveaxis(x, -1, 1)
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if 0 in x.shape[1:]:
        raise DataError(f"{path}: {name} must have values in each example, got shape {list(x.shape)}")
    if x.ndim > 2 and (x.min() < 0 or x.max() > 255):
        span = f"{x.min():g} to {x.max():g}"
        raise DataError(f"{path}: {name} must be images with levels 0 to 255, or 0 to 1, got {span}; rescale them")
    if x.ndim > 2:
        return np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32))
    return x.astype(np.float64)


def _targets(path: Path, labels: Array, class_names: Array | None, kind: str | None) -> Targets:
    what = f"{path}: y"
    if class_names is not None and labels.dtype.kind in "iu" and kind != "regression":
        names = tuple(map(str, class_names.reshape(-1).tolist()))
        if len(names) < 2 or int(labels.min()) < 0 or int(labels.max()) >= len(names):
            raise DataError(f"{what} must hold labels 0 to {len(names) - 1}, the positions in class_names")
        return Targets("classification", torch.from_numpy(labels.astype(np.int64)), names)
    texts = list(map(str, labels.tolist()))
    numbers: list[float | None] = [None] * len(texts)
    if labels.dtype.kind != "U":
        numbers = list(map(float, labels.astype(np.float64).tolist()))
    return read_targets(texts, numbers, kind, lambda row: f"{what}, row {row}", what)


def _maximum(images: Tensor) -> float:
    return 1.0 if images.dtype != torch.uint8 and float(images.max()) <= 1.0 else 255.0
