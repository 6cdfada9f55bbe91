"""A training state in one file that is either whole or absent.

Tensors (the method's, the optimiser's, the best so far) go into a safetensors file, numbers and settings as JSON into
its header; the file is written beside its place and moved there, so a crash or a full disk leaves the one before.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesify.errors import RunError

FORMAT = "bayesify-checkpoint-1"
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


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and JSON state to `path`, all or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flat = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_space(path.parent, sum(t.numel() * t.element_size() for t in flat.values()))
        # One key in the header: more would be written in varying order, and equal runs would differ as files.
        save_file(flat, temporary, {"bayesify": json.dumps({"format": FORMAT, "state": state})})
        temporary.chmod(0o666 & ~_umask())
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as problem:
        _discard(temporary)
        raise RunError(f"cannot write {path}: {_reason(problem)}; the state before it is kept") from None


def read(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write` wrote."""
    try:
        with safe_open(path, "pt", device=str(device)) as held:
            header = json.loads((held.metadata() or {}).get("bayesify", "{}"))
            if header.get("format") != FORMAT:
                raise RunError(f"{path} is not a checkpoint of bayesify")
            return {name: held.get_tensor(name) for name in held.keys()}, header["state"]  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}") from None
    except (SafetensorError, OSError, ValueError, KeyError) as problem:
        if isinstance(problem, RunError):
            raise
        raise RunError(f"{path} is damaged or half written: {_reason(problem)}") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write one JSON object to `path`, all or nothing."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text to `path`, all or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as problem:
        _discard(temporary)
        raise RunError(f"cannot write {path}: {_reason(problem)}") from None


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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + (1 << 16):
        raise OSError(28, f"no space left on the disk ({needed / 2**20:.1f} MiB needed, {free / 2**20:.1f} MiB free)")


def _reason(problem: Exception) -> str:
    return (getattr(problem, "strerror", None) or str(problem)).strip().splitlines()[0]
