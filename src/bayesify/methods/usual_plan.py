"""The learning rate and the schedule of `fit` where neither is given: those of the table in `defaults.py`.

The command line, scikit-learn's estimators and comparisons read the same table, so that one method and one kind of
problem have the same settings everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import TensorDataset

from bayesify.methods.defaults import LARGE_NETWORK, default_settings
from bayesify.training.batches import TensorExamples

if TYPE_CHECKING:
    from bayesify.methods.method import Method


def usual_plan(method: Method, data: Any) -> tuple[float | None, str]:
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


def _numbers(x: Any) -> bool:
    """Whether inputs are floating-point numbers; whole numbers may be the codes of words."""
    if isinstance(x, Tensor):
        return x.is_floating_point()
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    return kind == "f" or kind is None  # a data frame has a type for each column
