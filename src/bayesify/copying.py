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

from bayesify import initialisation
from bayesify.tracing import first_line


def original_and_copy(given: nn.Module | Callable[[], nn.Module], seed: int) -> tuple[nn.Module, nn.Module]:
    """The user's module and a copy to work on; what a function makes is ours already."""
    if not isinstance(given, nn.Module) and callable(given):
        made = initialisation.make(given, seed)
        if isinstance(made, nn.Module):
            return made, made
        given = made
    if not isinstance(given, nn.Module):
        raise TypeError(f"network must be a torch.nn.Module or a function that returns one, got {type(given).__name__}")
    # A tensor that was computed (an old-style weight norm, a cached activation) has no copy of its own in torch.
    computed = {
        id(value): value.detach().clone()
        for part in given.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        return given, copy.deepcopy(given, computed)
    except Exception as problem:
        raise TypeError(
            f"the network cannot be copied ({first_line(problem)}): give a function that makes it instead"
        ) from problem


def hollow(module: nn.Module) -> nn.Module:
    """The same module, its tensors replaced by shapes without values; tied tensors stay tied."""
    return _exchange(module, lambda _, tensor: torch.empty_like(tensor, device="meta"))


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a hollow module with values of its own."""
    return _exchange(copy.deepcopy(module), lambda name, _: tensors[name].detach().clone())


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


def _exchange(module: nn.Module, replace: Callable[[str, Tensor], Tensor]) -> nn.Module:
    new: dict[int, Tensor] = {}
    for name, parameter in module.named_parameters():
        new[id(parameter)] = nn.Parameter(replace(name, parameter), requires_grad=parameter.requires_grad)
    for name, buffer in module.named_buffers():
        new[id(buffer)] = replace(name, buffer)
    # Through `setattr`, which tells recurrent layers that their weights are others now.
    for part in module.modules():
        for leaf, tensor in [*part._parameters.items(), *part._buffers.items()]:
            if tensor is not None:
                setattr(part, leaf, new[id(tensor)])
    return module
