"""Copies of a user's module: a hollow one that is code only, and whole ones with weights filled in.

A hollow module's tensors have shapes but no storage (they are on torch's meta device): nothing is held twice, and code
that reads a weight past the one it is given fails loudly instead of using a stale value.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.errors import first_line
from bayesify.functional import initialisation


def as_module(given: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """The user's module, made if it is a function that makes one."""
    made = initialisation.make(given, seed) if not isinstance(given, nn.Module) and callable(given) else given
    if not isinstance(made, nn.Module):
        raise TypeError(f"network must be a torch.nn.Module or a function that returns one, got {type(made).__name__}")
    if isinstance(made, torch.jit.ScriptModule):
        raise TypeError("a scripted module cannot be run with other weights: give the module it was scripted from")
    # What `torch.compile` returns wraps the module, whose weights it would call by other names.
    compiled_from = made._modules.get("_orig_mod")
    return made if compiled_from is None else compiled_from


def hollow(module: nn.Module) -> nn.Module:
    """A copy whose tensors have no values; tied tensors stay tied."""
    try:
        empty = _copy(module, lambda _, tensor: torch.empty_like(tensor, device="meta"))
    except Exception as problem:
        raise TypeError(f"the network cannot be copied: {first_line(problem)}") from problem
    for part in empty.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            # One vector of weights has one dense gradient; its numbers are the same.
            part.sparse = False
    return empty


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a hollow module with values of its own."""
    return _copy(module, lambda name, _: tensors[name].detach().clone())


class Lock:
    """A lock that a copy or a pickle of its owner gets anew: passes of one network take turns."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *details: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Lock:
        return Lock()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def _copy(module: nn.Module, replace: Callable[[str, Tensor], Tensor]) -> nn.Module:
    # What the copying finds in this table it takes as copied already, wherever in the module it comes upon it.
    copied: dict[int, Any] = {}
    for name, parameter in module.named_parameters():
        copied[id(parameter)] = nn.Parameter(replace(name, parameter), requires_grad=parameter.requires_grad)
    for name, buffer in module.named_buffers():
        copied[id(buffer)] = replace(name, buffer)
    for part in module.modules():
        for value in vars(part).values():
            # A computed tensor (an old-style weight norm, a cached activation) has no copy of its own in torch.
            if isinstance(value, Tensor) and not value.is_leaf:
                copied[id(value)] = value.detach().clone()
    return copy.deepcopy(module, copied)
