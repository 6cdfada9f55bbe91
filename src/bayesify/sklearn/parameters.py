"""Checks of what people pass to an estimator: rows, weights, widths, seeds and options."""

from __future__ import annotations

import copy
import inspect
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight
from torch import nn

from bayesify.errors import BayesifyWarning, choose
from bayesify.methods.arguments import OTHER_NAMES
from bayesify.methods.method import Method


def dense(X: Any) -> NDArray[np.float64]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def checked_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Checked weights of rows; None where there are none."""
    if sample_weight is None:
        return None
    weights: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.sum() > 0:
        raise ValueError("sample_weight must have a weight above 0, got none")
    return weights


def started_from(network: nn.Module | Callable[[], nn.Module], before: Method) -> nn.Module:
    """The network with the mean weights of an earlier posterior."""
    made = copy.deepcopy(network) if isinstance(network, nn.Module) else network()
    tensors = before.network.unflatten(before.mean_weights.detach()[None])
    made.load_state_dict({name: tensor[0].clone() for name, tensor in tensors.items()}, strict=False)
    return made


def warn_at_the_call(sentences: Mapping[str, str]) -> None:
    """Warn at the user's call. The registry is new, so that every fit is heard, not only the first of its line."""
    here, frame = Path(__file__).parent, inspect.currentframe()
    while frame is not None and frame.f_back is not None and Path(frame.f_code.co_filename).parent == here:
        frame = frame.f_back
    assert frame is not None
    for sentence in sentences.values():
        warnings.warn_explicit(sentence, BayesifyWarning, frame.f_code.co_filename, frame.f_lineno, registry={})


def layer_widths(units: Any) -> tuple[int, ...]:
    if isinstance(units, numbers.Integral):
        return (int(units),)
    if isinstance(units, str) or not isinstance(units, Sequence | np.ndarray):
        raise TypeError(f"units must be a width, or one width per hidden layer, got {units!r}")
    return tuple(units)


def plain(value: Any) -> Any:
    """A Python number: parameter grids often hold numpy scalars."""
    return value.item() if isinstance(value, np.generic) else value


def seed_from(random_state: Any) -> int:
    generator = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def checked_options(
    name: str, options: Mapping[str, Any] | None, known: Mapping[str, Any], named: Sequence[str]
) -> dict[str, Any]:
    """The options as a dictionary, without unknown ones and without those that are parameters of the estimator."""
    for key in options or {}:
        if key in named:
            raise ValueError(f"{name} must not hold {key!r}: set the estimator's own parameter instead")
        meant = OTHER_NAMES.get(key)
        if meant is not None and key not in known and meant in known:
            own = {"seed": "random_state"}.get(meant, meant)
            where = f"the estimator's own parameter {own}=" if meant in named else f"{meant!r}"
            raise ValueError(f"unknown setting in {name} {key!r}; use {where}")
        choose(f"setting in {name}", key, [other for other in known if other not in named])
    return dict(options or {})
