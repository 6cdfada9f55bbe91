"""Copies of a user's module: a hollow copy without values, and full copies with given weights.

The tensors of a hollow copy have shapes but no values (they are on torch's meta device). Memory is not used twice, and
code that reads a weight other than the one it is given fails instead of using a stale value.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.errors import first_line
from bayesify.functional import initialisation


def as_module(network: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """The user's module, or the one that the user's function makes.

    Args:
        network: the module, or a function without arguments that makes one.
        seed: seed of torch's generator while the function runs.

    """
    module = network
    if not isinstance(network, nn.Module) and callable(network):
        _check_factory(network)
        module = initialisation.make(network, seed)
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"network must be a torch.nn.Module or a function that returns one, got {type(module).__name__}"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("a scripted module cannot be run with other weights: give the module it was scripted from")
    # `torch.compile` wraps the module and changes the names of its weights.
    compiled_from = module._modules.get("_orig_mod")
    return module if compiled_from is None else compiled_from


def hollow(module: nn.Module) -> nn.Module:
    """A copy of a module whose tensors have no values; tied tensors stay tied."""
    try:
        empty = _copy(module, lambda _, tensor: torch.empty_like(tensor, device="meta"))
    except Exception as problem:
        raise TypeError(f"the network cannot be copied: {first_line(problem)}") from problem
    for submodule in empty.modules():
        if isinstance(submodule, nn.Embedding | nn.EmbeddingBag):
            # The gradient of the flat vector is dense; its values are the same.
            submodule.sparse = False
    return empty


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a hollow module with copies of the given tensors."""
    return _copy(module, lambda name, _: tensors[name].detach().clone())


class Lock:
    """A lock for the passes of one network; a copy or pickle of the network gets a new lock."""

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


def _check_factory(factory: Callable[[], nn.Module]) -> None:
    """Refuse a function that needs arguments."""
    try:
        inspect.signature(factory).bind()
    except TypeError as problem:
        raise TypeError(
            f"network must be a torch.nn.Module or a function without arguments that makes one, got a function that "
            f"needs arguments ({problem}): give the module, or write lambda: Net(...)"
        ) from None
    except ValueError:  # a function of C has no signature
        return


def _copy(module: nn.Module, replace: Callable[[str, Tensor], Tensor]) -> nn.Module:
    # `deepcopy` takes what it finds in this table as copied already.
    copied: dict[int, Any] = {}
    for name, parameter in module.named_parameters():
        copied[id(parameter)] = nn.Parameter(replace(name, parameter), requires_grad=parameter.requires_grad)
    for name, buffer in module.named_buffers():
        copied[id(buffer)] = replace(name, buffer)
    for submodule in module.modules():
        for value in vars(submodule).values():
            # Torch cannot deep-copy a computed tensor (an old-style weight norm, a cached activation).
            if isinstance(value, Tensor) and not value.is_leaf:
                copied[id(value)] = value.detach().clone()
    return copy.deepcopy(module, copied)
