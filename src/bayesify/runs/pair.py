"""`config.json` and `model.safetensors`, replaced together: a crash between the two leaves the old or the new pair.

The new description is first written to `.config.next`, with the checksum of the tensors that it belongs to. The pair is
new as soon as the tensors with that checksum are in place. Whoever reads the run between the two sees this, and the
next process that writes into the folder finishes the move.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesify.errors import RunError
from bayesify.files import check_regular, delete, write_json
from bayesify.runs import tensor_files

CONFIG, MODEL = "config.json", "model.safetensors"
NEXT = ".config.next"


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a description and its tensors.

    Args:
        folder: the run folder.
        config: the description.
        tensors: the tensors by name.
        state: what the header of the tensors says besides.

    Raises:
        RunError: a file cannot be written; the folder holds the pair that was there, or the whole new one.

    """
    checksum = tensor_files.checksum(tensors, state)
    # A first description needs no other: without it the folder is no run yet.
    replaces = (folder / CONFIG).exists()
    if replaces:
        write_json(folder / NEXT, {"tensors": checksum, "config": config})
    try:
        tensor_files.write(folder / MODEL, tensors, state, checksum)
    except RunError:
        if newer_config(folder) is None:
            _discard(folder)
        raise
    write_json(folder / CONFIG, config)
    _discard(folder)


def newer_config(folder: Path) -> dict[str, Any] | None:
    """The description of a pair whose tensors are in place while `config.json` is still the old one; usually None."""
    path = folder / NEXT
    try:
        if not path.exists():
            return None
        check_regular(path)
        saved = json.loads(path.read_text(encoding="utf-8"))
        config: dict[str, Any] = saved["config"]
        if isinstance(config, dict) and saved["tensors"] == tensor_files.checksum_of(folder / MODEL):
            return config
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return None


def settle(folder: Path) -> None:
    """Finish or undo what a killed process began: for a process that is about to write into the folder."""
    config = newer_config(folder)
    if config is not None:
        write_json(folder / CONFIG, config)
    delete(folder / NEXT)


def _discard(folder: Path) -> None:
    # Where it cannot be deleted it says what `config.json` says, or belongs to tensors that were never written. A disk
    # that failed once may delete it at the second try.
    for _ in range(2):
        with contextlib.suppress(OSError):
            (folder / NEXT).unlink(missing_ok=True)
            return
