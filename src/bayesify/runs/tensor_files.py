"""A checkpoint: tensors and a JSON state in one safetensors file, written completely or not at all.

The tensors are those of the method and the optimiser, and the best so far. Numbers and settings are JSON in the header,
with a checksum of everything, which `read` compares. Files of version 0.1 have none and are read without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesify.errors import RunError
from bayesify.files import check_regular, reason, replacing

FORMAT = "bayesify-checkpoint-1"
# What the parsers of JSON and safetensors raise for damaged files.
_DAMAGE = (
    SafetensorError, ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any], known: str | None = None) -> None:
    """Write tensors and a JSON state to `path`, completely or not at all; `known` is their checksum, if it is known."""
    flat = _flat(tensors)
    size = sum(tensor.numel() * tensor.element_size() for tensor in flat.values())
    # One key in the header: several would be written in varying order, and files of equal runs would differ.
    header = json.dumps({"format": FORMAT, "checksum": known or _checksum(flat, state), "state": state})
    try:
        # Safetensors writes to a temporary file of its own, which would stay after a kill.
        with replacing(path, size, alone=True) as temporary:
            save_file(flat, temporary, {"bayesify": header})
    except (OSError, SafetensorError) as problem:
        raise RunError(f"cannot write {path}: {reason(problem)}; the previous checkpoint is kept") from None


def read(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint.

    Args:
        path: the file.
        device: where to put the tensors.

    Returns:
        The tensors by name, and the state.

    Raises:
        RunError: the file is missing, damaged, or was not written by `write`.

    """
    with explained(path), safe_open(path, "pt") as file:
        header = _header(file, path)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = header["state"]
        if not isinstance(state, dict):
            raise TypeError("its state is no object")
        expected = header.get("checksum")
        if expected is not None and expected != _checksum(tensors, state):
            raise RunError(f"{path} is damaged: its content does not have its checksum; use a copy, or train again")
        return {name: tensor.to(device) for name, tensor in tensors.items()}, state


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a checkpoint, from its header alone."""
    with explained(path), safe_open(path, "pt") as file:
        _header(file, path)
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _header(file: Any, path: Path) -> dict[str, Any]:
    header = json.loads((file.metadata() or {}).get("bayesify", "{}"))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RunError(f"{path} is not a checkpoint written by bayesify")
    return header


def checksum(tensors: dict[str, Tensor], state: dict[str, Any]) -> str:
    """The checksum that a file of these tensors and this state has in its header."""
    return _checksum(_flat(tensors), state)


def checksum_of(path: Path) -> str | None:
    """The checksum in the header of a file, which alone is read; None in files of version 0.1."""
    with explained(path), safe_open(path, "pt") as file:
        found = _header(file, path).get("checksum")
    return found if isinstance(found, str) else None


def digest(tensors: dict[str, Tensor]) -> str:
    """A digest of tensors by name, wherever they are: equal for equal values."""
    return checksum(tensors, {})


def _flat(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}


def _checksum(tensors: dict[str, Tensor], state: dict[str, Any]) -> str:
    """A digest of the state and of the name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256(json.dumps(state).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn every error of a damaged file into a `RunError` that names it."""
    try:
        check_regular(path)
        yield
    except FileNotFoundError:
        raise RunError(f"there is no {path.name} in {path.parent}") from None
    except RunError:
        raise
    except _DAMAGE as problem:
        raise RunError(f"{path} is damaged or incomplete: {reason(problem)}") from None
