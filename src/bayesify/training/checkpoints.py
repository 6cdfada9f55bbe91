"""When training writes a checkpoint, and an optimiser's state in a form that a checkpoint can hold."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Checkpoints of their own accord wait this many times as long as the last one took.
_BETWEEN = 20


class Pace:
    """How often to write: every so many epochs or, where no number is given, so that it takes a 20th of the time."""

    def __init__(self, every: int | None) -> None:
        self.every = every
        self._ended, self._took = -math.inf, 0.0

    def due(self, epochs: int) -> bool:
        """Whether to write after so many epochs; of its own accord, always after the first."""
        if self.every is not None:
            return epochs % self.every == 0
        return time.perf_counter() - self._ended >= _BETWEEN * self._took

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Takes the time of what is done inside."""
        began = time.perf_counter()
        yield
        self._ended = time.perf_counter()
        self._took = self._ended - began


def pack_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's state as tensors by name and a JSON-able rest."""
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
    """Put back what `pack_optimizer` took out."""

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

    held = restore(packed)
    optimizer.load_state_dict(held)
    # Torch gives every tensor its parameter's dtype; one that was kept in another goes on in that one.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, own in held["state"].items():
        state = optimizer.state[parameters[number]]
        for name, value in own.items():
            if isinstance(value, Tensor) and state[name].dtype != value.dtype:
                state[name] = value.to(state[name].device)
