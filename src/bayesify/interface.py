"""How a module takes its inputs, which may be any pytree, and which part of what it returns is the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def bind(signature: inspect.Signature, x: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a forward: a mapping as keywords and a tuple as positions where it allows it, else x as it is."""
    x = pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, x)
    if isinstance(x, Mapping) and _binds(signature, (), x):
        return (), dict(x)
    if isinstance(x, list | tuple) and _binds(signature, tuple(x), {}):
        return tuple(x), {}
    return (x,), {}


def pick(result: Any, output: str | int | Callable[[Any], Tensor] | None) -> Tensor:
    """The one tensor of a result that `output` names: a key, an index, an attribute or a function."""
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise TypeError(
            f"the network returns {type(result).__name__}, not a tensor: "
            "pick one with output=, a key, an index, an attribute or a function"
        )
    return result


def count(x: Any) -> int:
    """How many examples a pytree of inputs holds."""
    return int(next(leaf for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor)).shape[0])


def _binds(signature: inspect.Signature, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True


def _part(result: Any, name: str | int) -> Any:
    if isinstance(result, Tensor):
        raise ValueError(f"output={name!r} is not needed: the network returns one tensor")  # noqa: TRY004
    try:
        if isinstance(name, str) and not isinstance(result, Mapping):
            return getattr(result, name)
        return result[name]
    except (KeyError, IndexError, TypeError, AttributeError):
        known = f"; it has {', '.join(map(str, result))}" if isinstance(result, Mapping) else ""
        raise ValueError(
            f"output={name!r} is not in what the network returns, a {type(result).__name__}{known}"
        ) from None
