"""When to write a checkpoint, and the state of an optimiser in a form that a checkpoint can hold."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Without a number of epochs, the time between checkpoints is this many times what the last one took.
_BETWEEN = 20


class Pace:
    """How often to write a checkpoint.

    Args:
        every: epochs between checkpoints; None writes as often as a 20th of the training time allows.

    """

    def __init__(self, every: int | None) -> None:
        self.every = every
        self._ended, self._took = -math.inf, 0.0

    def due(self, epochs: int) -> bool:
        """Whether to write a checkpoint after `epochs` epochs."""
        if self.every is not None:
            return epochs % self.every == 0
        return time.perf_counter() - self._ended >= _BETWEEN * self._took

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Measure how long it takes to write a checkpoint inside this context."""
        began = time.perf_counter()
        yield
        self._ended = time.perf_counter()
        self._took = self._ended - began


def pack_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimiser as tensors by name, and the rest in a form that JSON can hold."""
    tensors: dict[str, Tensor] = {}

    def strip(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {"tensor": path}
        if isinstance(value, dict):
            return {"map": [[key, strip(item, f"{path}/{key}")] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [strip(item, f"{path}/{number}") for number, item in enumerate(value)]}
        return {"value": value}

    return tensors, strip(optimizer.state_dict(), "optimizer")


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], packed: dict[str, Any]) -> None:
    """Restore the state that `pack_optimizer` took from an optimiser."""

    def restore(value: dict[str, Any]) -> Any:
        ((kind, content),) = value.items()
        if kind == "tensor":
            return tensors[content]
        if kind == "map":
            return {key: restore(item) for key, item in content}
        if kind in {"list", "tuple"}:
            items = [restore(item) for item in content]
            return tuple(items) if kind == "tuple" else items
        return content

    saved = restore(packed)
    optimizer.load_state_dict(saved)
    # Torch casts every tensor to its parameter's dtype; tensors that were saved in another dtype get theirs back.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, slots in saved["state"].items():
        state = optimizer.state[parameters[number]]
        for name, value in slots.items():
            if isinstance(value, Tensor) and state[name].dtype != value.dtype:
                state[name] = value.to(state[name].device)
