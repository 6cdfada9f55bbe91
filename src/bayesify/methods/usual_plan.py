"""The learning rate, the schedule and the epochs of `fit` where none are given: those of the table in `defaults.py`.

The command line, scikit-learn's estimators and comparisons read the same table, so that one method and one kind of
problem have the same settings everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bayesify.methods.defaults import (
    FEWEST_EPOCHS,
    FEWEST_STEPS,
    LARGE_NETWORK,
    MANY_ROWS,
    MANY_STEPS,
    default_settings,
    enough_epochs,
)
from bayesify.training.batches import Examples, TensorExamples

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting


def usual_plan(method: Fitting, data: Any) -> tuple[float | None, str]:
    """The learning rate and the schedule of a method for the kind of its problem.

    Args:
        method: the method, with its network and likelihood.
        data: as `fit` takes it.

    Returns:
        The rate, None where the method finds it, and the schedule.

    """
    kind = method.likelihood.kind if method.likelihood.kind == "classification" else "regression"
    settings = default_settings(method.name, kind, images=not is_table(data, method.network.size))
    return settings["learning_rate"], settings.get("schedule") or "constant"


def usual_epochs(method: Fitting, data: Any, batch_size: int) -> int:
    """The epochs of `fit` where none are given: at least 10, and enough for the usual steps if the length is known.

    Args:
        method: the method, with its network and likelihood.
        data: as `fit` takes it.
        batch_size: examples in a step; a loader has its own.

    Returns:
        The epochs.

    """
    rows = _length(data)
    if rows is None or isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        return FEWEST_EPOCHS
    if isinstance(data, DataLoader):
        return enough_epochs(rows, 1)
    numbers = method.likelihood.kind != "classification" and is_table(data, method.network.size)
    return enough_epochs(rows, batch_size, MANY_STEPS if numbers and rows >= MANY_ROWS else FEWEST_STEPS)


def is_table(data: Any, weights: int) -> bool:
    """Whether inputs are rows of numbers in memory and the network is small; all else has the defaults of images.

    Args:
        data: as `fit` takes it.
        weights: of the network.

    """
    if isinstance(data, TensorExamples):
        x: Any = data.x
    elif isinstance(data, TensorDataset):
        x = data.tensors[0] if len(data.tensors) == 2 else None
    else:
        x = data[0] if isinstance(data, tuple | list) and len(data) == 2 else None
    return weights <= LARGE_NETWORK and len(getattr(x, "shape", ())) == 2 and _numbers(x)


def _length(data: Any) -> int | None:
    """The number of examples, for a loader that of its batches; None where it is not known."""
    if isinstance(data, Examples):
        return data.n_data
    pair = isinstance(data, tuple | list) and len(data) == 2
    if not (pair or isinstance(data, DataLoader | Dataset)):
        return None
    counted = data[1] if pair else data
    if pair and isinstance(counted, Mapping):
        counted = next(iter(counted.values()), None)
    try:
        return len(counted)
    except (TypeError, NotImplementedError):
        return None


def _numbers(x: Any) -> bool:
    """Whether inputs are floating-point numbers; whole numbers may be the codes of words."""
    if isinstance(x, Tensor):
        return x.is_floating_point()
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    return kind == "f" or kind is None  # a data frame has a type for each column
