"""How a module takes its inputs, which may be any pytree, and which part of what it returns is the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class InterfaceError(TypeError, ValueError):
    """A network that takes inputs by other names, or returns something else, than was said: the line is complete."""


def bind(signature: inspect.Signature, x: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a forward: a mapping as keywords and a tuple as positions where it allows it, else x as it is."""
    x = pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, x)
    if isinstance(x, Mapping) and _binds(signature, (), x):
        return (), dict(x)
    if isinstance(x, list | tuple) and _binds(signature, tuple(x), {}):
        return tuple(x), {}
    if isinstance(x, Mapping) and not _binds(signature, (x,), {}):
        check_names(signature, x)
    return (x,), {}


def check_names(signature: inspect.Signature, x: Mapping[str, Any]) -> None:
    """Refuse a mapping whose names are not those of a forward's parameters."""
    kinds = inspect.Parameter
    parameters = signature.parameters.values()
    named = [one for one in parameters if one.kind in {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY}]
    needed, known = [one.name for one in named if one.default is kinds.empty], [one.name for one in named]
    takes_more = any(one.kind is kinds.VAR_KEYWORD for one in parameters)
    _compare_names(x, needed, known, "the network takes", takes_more=takes_more)


def by_name(x: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The parts of x in the order of the names trained on, whatever order they come in."""
    _compare_names(x, names, names, "the network was trained on")
    return {name: x[name] for name in names}


def listed(names: Iterable[Any]) -> str:
    """Names as a sentence has them: 'a', 'b' and 'c'."""
    *most, last = [repr(name) for name in names] or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


def pick(result: Any, output: str | int | Callable[[Any], Tensor] | None) -> Tensor:
    """The one tensor of a result that `output` names: a key, an index, an attribute or a function."""
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise InterfaceError(
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


def _compare_names(
    given: Iterable[str], needed: Sequence[str], known: Sequence[str], whose: str, *, takes_more: bool = False
) -> None:
    given = list(given)
    missing = [name for name in needed if name not in given]
    unknown = [name for name in given if name not in known and not takes_more]
    wrong = [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in ((missing, "missing"), (unknown, "unknown"))
        if names
    ]
    if wrong:
        raise InterfaceError(f"inputs are named {listed(given)}, {whose} {listed(known)}: {', '.join(wrong)}")


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
