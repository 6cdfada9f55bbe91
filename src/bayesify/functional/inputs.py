"""How inputs, which may be any pytree, become arguments of a module, and which part of its result is the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class InterfaceError(TypeError, ValueError):
    """The names of the inputs or the result of a network do not fit; the message needs no further explanation."""


def bind(signature: inspect.Signature, x: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a `forward` for inputs x.

    Args:
        signature: signature of the `forward`.
        x: inputs; a mapping becomes keywords and a tuple positional arguments, where the signature allows it.
        dtype: of floating-point inputs.

    Returns:
        Positional arguments, and keyword arguments by name.

    Raises:
        InterfaceError: if x is a mapping whose names the signature does not have.

    """
    x = pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, x)
    if isinstance(x, Mapping) and _binds(signature, (), x):
        return (), dict(x)
    if isinstance(x, list | tuple) and _binds(signature, tuple(x), {}):
        return tuple(x), {}
    if isinstance(x, Mapping) and not _binds(signature, (x,), {}):
        check_names(signature, x)
    return (x,), {}


def check_names(signature: inspect.Signature, x: Mapping[str, Any]) -> None:
    """Raise where the names in a mapping are not those of the parameters of a `forward`."""
    kinds = inspect.Parameter
    parameters = signature.parameters.values()
    named = [
        parameter for parameter in parameters if parameter.kind in {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY}
    ]
    needed = [parameter.name for parameter in named if parameter.default is kinds.empty]
    known = [parameter.name for parameter in named]
    takes_more = any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters)
    _compare_names(x, needed, known, "the network takes", takes_more=takes_more)


def by_name(x: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The parts of x in the order of `names`, those trained on; raises where the names differ."""
    _compare_names(x, names, names, "the network was trained on")
    return {name: x[name] for name in names}


def check_columns(names: Sequence[str], trained_on: Sequence[str]) -> None:
    """Raise where the columns of a table are not those of training, in any order."""
    wrong = [
        f"{'column' if len(group) == 1 else 'columns'} {listed(group)} {'is' if len(group) == 1 else 'are'} {what}"
        for group, what in (
            ([name for name in trained_on if name not in names], "missing from the inputs"),
            ([name for name in names if name not in trained_on], "not among those trained on"),
        )
        if group
    ]
    if wrong:
        raise InterfaceError(f"{', '.join(wrong)}: give the columns of training, or an array in their order")


def listed(names: Iterable[Any]) -> str:
    """Names as words of a sentence: 'a', 'b' and 'c'."""
    *most, last = [repr(name) for name in names] or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


def pick(result: Any, output: str | int | Callable[[Any], Tensor] | None) -> Tensor:
    """The tensor in the result of a module that `output` names.

    Args:
        result: what the module returned.
        output: a key, an index, an attribute or a function; None where the module returns one tensor.

    Raises:
        InterfaceError: if there is no such tensor.

    """
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise InterfaceError(
            f"the network returns {type(result).__name__}, not a tensor: "
            f"pick one with output=, a key, an index, an attribute or a function{_suggested(result)}"
        )
    return result


def _suggested(result: Any) -> str:
    """The keys of the tensors in a result, as an example where there is one alone."""
    keys = [key for key, part in result.items() if isinstance(part, Tensor)] if isinstance(result, Mapping) else []
    if len(keys) == 1:
        return f", such as output={keys[0]!r}"
    return f"; it has {', '.join(map(str, keys))}" if keys else ""


def count(x: Any) -> int:
    """The number of examples in inputs that may be any pytree."""
    return int(next(leaf for leaf in pytree.tree_leaves(x) if isinstance(leaf, Tensor)).shape[0])


def _binds(signature: inspect.Signature, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True


def _compare_names(
    names: Iterable[str], needed: Sequence[str], known: Sequence[str], expected_by: str, *, takes_more: bool = False
) -> None:
    names = list(names)
    missing = [name for name in needed if name not in names]
    unknown = [name for name in names if name not in known and not takes_more]
    wrong = [
        f"{listed(group)} {'is' if len(group) == 1 else 'are'} {what}"
        for group, what in ((missing, "missing"), (unknown, "unknown"))
        if group
    ]
    if wrong:
        raise InterfaceError(f"inputs are named {listed(names)}, {expected_by} {listed(known)}: {', '.join(wrong)}")


def _part(result: Any, name: str | int) -> Any:
    if isinstance(result, Tensor):
        raise InterfaceError(f"output={name!r} is not needed: the network returns one tensor")
    try:
        if isinstance(name, str) and not isinstance(result, Mapping):
            return getattr(result, name)
        return result[name]
    except (KeyError, IndexError, TypeError, AttributeError):
        known = f"; it has {', '.join(map(str, result))}" if isinstance(result, Mapping) else ""
        raise InterfaceError(
            f"output={name!r} is not in what the network returns, a {type(result).__name__}{known}"
        ) from None
