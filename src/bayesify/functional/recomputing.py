"""Activation checkpointing: some modules keep only their inputs, and run again in the backward pass.

A module of the network has its weights only while a pass runs (`functional_call`), but the second run comes later, in
the backward pass. Therefore it is given the same tensors, buffers and dropout masks again (Chen, Xu, Zhang and
Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, arXiv:1604.06174).
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch.utils.checkpoint
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from bayesify.errors import nearest
from bayesify.functional.dropout import KeyedDropout

OWN_CHECKPOINTS = (
    "the network runs a part again in the backward pass, where it no longer has the drawn weights: switch its "
    "activation checkpointing off, and name the part in fit(recompute=[...])"
)


def modules_to_recompute(module: nn.Module, patterns: Sequence[str]) -> list[str]:
    """The outermost modules that patterns name, such as `blocks.*`.

    Args:
        module: the network.
        patterns: patterns of module names.

    Returns:
        Names of modules, none inside another.

    Raises:
        TypeError: the patterns are not texts.
        ValueError: a pattern names no module.

    """
    listed = isinstance(patterns, Sequence) and not isinstance(patterns, str)
    if not listed or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"recompute must be a list of patterns of module names, got {patterns!r}")
    names = [name for name, submodule in module.named_modules() if name and not isinstance(submodule, nn.ModuleList)]
    chosen: list[str] = []
    for pattern in patterns:
        matched = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not matched:
            raise ValueError(f"recompute pattern {pattern!r} names no module of the network{nearest(pattern, names)}")
        chosen += matched
    return [name for name in names if name in chosen and not any(name.startswith(f"{other}.") for other in chosen)]


@contextmanager
def recomputing(template: nn.Module, names: Sequence[str], dropout: KeyedDropout | None) -> Iterator[None]:
    """Inside this context the named modules keep their inputs alone.

    Args:
        template: the network, with its tensors in place.
        names: of the modules.
        dropout: the active dropout of the pass, where there is any.

    """
    modules = [template.get_submodule(name) for name in names]
    for module in modules:
        module.__dict__["forward"] = _Recomputed(module, dropout)
    try:
        yield
    finally:
        for module in modules:
            del module.__dict__["forward"]


@contextmanager
def noticing_checkpoints() -> Iterator[list[str]]:
    """Notice in this context whether a module makes checkpoints by itself: yields a list with a name for each.

    Their second run comes when the module no longer has the weights of the pass.
    """
    module, seen = torch.utils.checkpoint, list[str]()
    with ExitStack() as restored:
        for name in ("CheckpointFunction", "_checkpoint_without_reentrant_generator"):
            own = getattr(module, name, None)
            if own is not None:
                restored.callback(setattr, module, name, own)
                setattr(module, name, _Noticed(own, partial(seen.append, name)))
        yield seen


class _Noticed:
    """A function of torch's checkpoints, or a class with one, that says when it is called."""

    def __init__(self, own: Any, tell: Callable[[], None]) -> None:
        self.own, self.tell = own, tell

    def __call__(self, *positional: Any, **named: Any) -> Any:
        self.tell()
        return self.own(*positional, **named)

    def apply(self, function: Callable[..., Any], _: bool, *arguments: Any) -> Any:
        """`CheckpointFunction.apply` without gradients, where torch would warn that there are none."""
        self.tell()
        return function(*arguments)


class _Recomputed:
    """The forward of a module that runs again in the backward pass."""

    def __init__(self, module: nn.Module, dropout: KeyedDropout | None) -> None:
        self.module, self.dropout = module, dropout
        self.forward: Callable[..., Any] = type(module).forward.__get__(module)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        runner = WithForward(self.module, self.forward)
        tensors = {f"module.{name}": tensor for name, tensor in self.module.named_parameters()}
        buffers = {f"module.{name}": tensor for name, tensor in self.module.named_buffers()}
        before = {name: tensor.clone() for name, tensor in buffers.items()}
        first = True

        def run(*arguments: Any, **keywords: Any) -> Any:
            nonlocal first
            # The second run must not update running statistics again.
            own = buffers if first else {name: tensor.clone() for name, tensor in before.items()}
            first = False
            return functional_call(runner, {**tensors, **own}, arguments, keywords)

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            if self.dropout is None:
                return nullcontext(), nullcontext()
            again = copy.copy(self.dropout)  # its number of sites so far is that at the start of this module
            return nullcontext(), again

        return checkpoint(run, *positional, use_reentrant=False, context_fn=contexts, **named)


class WithForward(nn.Module):
    """A module with its own forward, not the one that recomputes."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.run = forward

    def forward(self, *positional: Any, **named: Any) -> Any:
        return self.run(*positional, **named)
