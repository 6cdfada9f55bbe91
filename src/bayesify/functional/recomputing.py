"""Activation checkpointing: some modules keep only their inputs, and run again in the backward pass.

A module of the network has its weights only while a pass runs (`swapping.py`), but the second run comes later, in the
backward pass. `Network` gives it the same tensors, buffers and dropout masks again. That holds for the modules that
`fit(recompute=)` names and for checkpoints that the network makes itself, as Hugging Face's models do after
`gradient_checkpointing_enable()` (Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016,
arXiv:1604.06174).
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch.utils.checkpoint
from torch import nn

from bayesify.errors import nearest

Function = Callable[..., Any]

OWN_CHECKPOINTS = (
    "the network runs a part again in the backward pass, where it no longer has the drawn weights: use "
    "torch.utils.checkpoint for it, or name the part in fit(recompute=[...])"
)
NOT_REPEATABLE = (
    "the network makes activation checkpoints (torch.utils.checkpoint), which need estimator='weight' and weights that "
    "are not sharded: switch its checkpointing off"
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
def recomputing(template: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Inside this context the named modules keep their inputs alone.

    Args:
        template: the network, with its tensors in place.
        names: of the modules.

    """
    with ExitStack() as restored:
        for name in names:
            module = template.get_submodule(name)
            restored.callback(_restore_forward, module, module.__dict__.get("forward"))
            run_again = partial(torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False)
            module.__dict__["forward"] = run_again
        yield


def _restore_forward(module: nn.Module, own: Function | None) -> None:
    del module.__dict__["forward"]
    if own is not None:
        module.__dict__["forward"] = own


class _InThread(threading.local):
    """What the checkpoints of a thread run in the backward pass; None leaves them to torch."""

    again: Callable[[Function], Function] | None = None


_HERE = _InThread()
_GUARD = threading.Lock()
_originals: dict[str, Any] = {}
_inside = 0


@contextmanager
def second_runs(again: Callable[[Function], Function]) -> Iterator[None]:
    """Inside this context and thread, the second run of a checkpointed function is that of `again(function)`.

    Reentrant checkpoints become others: they would lose the gradients of weights that are not arguments.

    Args:
        again: called when the checkpoint is made.

    """
    before = _HERE.again
    _install(1)
    _HERE.again = again
    try:
        yield
    finally:
        _HERE.again = before
        _install(-1)


def _install(change: int) -> None:
    """Replace two functions of torch while any thread is inside `second_runs`."""
    global _inside
    module = torch.utils.checkpoint
    with _GUARD:
        _inside += change
        if not _inside:
            for name, own in _originals.items():
                setattr(module, name, own)
            _originals.clear()
        elif not _originals:
            for name, kind in (
                ("_checkpoint_without_reentrant_generator", _Checkpoint),
                ("CheckpointFunction", _Reentrant),
            ):
                _originals[name] = getattr(module, name)
                setattr(module, name, kind(_originals[name]))


class _Checkpoint:
    """Torch's checkpoint, whose second run `second_runs` decides."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __call__(self, function: Function, *settings: Any, **named: Any) -> Any:
        return self.own(function if _HERE.again is None else _HERE.again(function), *settings, **named)


class _Reentrant:
    """Torch's `CheckpointFunction`; inside `second_runs` a checkpoint that is not reentrant."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def apply(self, function: Function, preserve: bool, *arguments: Any) -> Any:
        if _HERE.again is None:
            return self.own.apply(function, preserve, *arguments)
        checkpoint = torch.utils.checkpoint.checkpoint
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=preserve)


class WithForward(nn.Module):
    """A module with its own forward, not the one that recomputes."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.run = forward

    def forward(self, *positional: Any, **named: Any) -> Any:
        return self.run(*positional, **named)
