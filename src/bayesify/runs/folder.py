"""A run folder, version 1: what was trained, how, and on which data.

`config.json` describes the method, the network and the data; `model.safetensors` has the tensors; `checkpoint/` is for
resuming; `history.jsonl` and `metrics.json` have the course and the scores of training. Nothing is pickled, so reading
a run never runs code from it. `bayesify.methods.saving` writes methods into such a folder and reads them.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
import shutil
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bayesify import distributed
from bayesify.errors import RunError, first_line
from bayesify.files import check_regular, delete, reason, remove_leftovers
from bayesify.runs import lock, pair
from bayesify.runs.pair import CONFIG, MODEL

VERSION = 1
FORMAT = "bayesify-run"
HISTORY, METRICS = "history.jsonl", "metrics.json"
STATE = Path("checkpoint") / "state.safetensors"
CARD, CARD_MARK = "README.md", "library_name: bayesify"
UNKNOWN, CONTINUAL = "unknown.safetensors", "continual.safetensors"
GUARANTEES, CERTIFICATE = "guarantees.json", "certificate.json"
_PARTS = {
    *(CONFIG, MODEL, HISTORY, METRICS, UNKNOWN, CONTINUAL, GUARANTEES, CERTIFICATE),
    *("checkpoint", "report.html", "report.json"),
}

# The JSON types of what a configuration holds; None stands for null.
_TYPES: dict[str, tuple[type, ...]] = {
    "method": (str,),
    "settings": (dict,),
    "network": (dict, type(None)),
    "bayesian": (str, list),
    "output": (str, int, type(None)),
    "parameters": (dict,),
    "prior": (str, type(None)),
    "likelihood": (dict,),
    "start": (str,),
    "seed": (int,),
    "complete": (bool,),
    "input_shapes": (list, type(None)),
    "input_names": (list, type(None)),
    "column_names": (list, type(None)),
    "data": (dict, type(None)),
    "plan": (dict, type(None)),
    "versions": (dict,),
    "threads": (int,),
    "device": (str,),
    "base": (dict, type(None)),
    "stopped": (str, type(None)),
}
_TYPES_OF_DATA: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "path": (str, type(None)),
    "options": (dict, type(None)),
    "kind": (str,),
    "fingerprint": (str, type(None)),
    "class_names": (list, type(None)),
    "withheld": (list, type(None)),
    "examples": (dict,),
    "preparation": (dict, type(None)),
    "factory": (str, type(None)),
}
# Of one input: an image of 9,000 x 9,000 in colour has fewer.
_MOST_NUMBERS = 1 << 28
_NAMES = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}

logger = logging.getLogger("bayesify")


def claim(folder: Path, *, overwrite: bool) -> Path:
    """Check that a folder can be used for a new run, and lock it where training begins (`lock.holds_locks`).

    Nothing that is in the folder changes, except that temporary files of processes that were killed are deleted.
    """
    _check_alone(folder)
    try:
        if folder.is_dir() and not overwrite:
            lock.check(folder)
            remove_leftovers(folder)
            if any(path.name != lock.LOCK for path in folder.iterdir()):
                raise RunError(
                    f"{folder} is not empty: choose another folder, or replace it (overwrite=True, --overwrite)"
                )
        check_no_other_content(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Named as `files.replacing` names its files: if this process is killed here, the next one deletes it.
        probe = folder / f".write.{os.getpid()}.{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    use(folder)
    if not overwrite and any(path.name != lock.LOCK for path in folder.iterdir()):
        raise RunError(f"{folder} is in use: another process wrote a run there at this moment")
    return folder


def _check_alone(folder: Path) -> None:
    """Refuse a folder that all processes of a distributed launch would train into, each a network that shares nothing.

    `torchrun` and like tools say in the environment how many processes there are and which one this is.
    """
    count, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    if distributed.within_group():
        return  # they train one network together
    if not count.isdecimal() or int(count) < 2 or re.search(rf"(?<!\d){rank or 'RANK'}(?!\d)", folder.name):
        return
    raise RunError(
        f"{count} processes (WORLD_SIZE) would train {count} unrelated copies into {folder}: start one process, or "
        f"give each its own folder, such as {folder.name}-{rank or 'RANK'}"
    )


def use(folder: Path) -> None:
    """Lock a run folder that is about to be written (`lock.take`), and delete what killed processes left in it.

    Raises:
        RunError: another process trains into the folder, or its `checkpoint` is a link to another place.

    """
    group = distributed.active()
    if group is not None and not group.first:
        return
    if (folder / "checkpoint").is_symlink():
        raise RunError(f"{folder / 'checkpoint'} is a link: a run is not written through links, remove it first")
    lock.take(folder)
    remove_leftovers(folder, folder / "checkpoint")
    pair.settle(folder)


def clear(folder: Path) -> None:
    """Delete what an earlier run left beside its model: its checkpoint, history, scores and pages."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    delete(folder / HISTORY)
    delete_scores(folder)


def delete_scores(folder: Path) -> None:
    """Delete what no longer describes a model that is trained further: its scores, pages and model card."""
    for name in _PARTS - {CONFIG, MODEL, HISTORY, "checkpoint"}:
        delete(folder / name)
    # A README that a person wrote stays.
    card = folder / CARD
    if card.is_file() and CARD_MARK in card.read_text(encoding="utf-8", errors="replace")[:2000]:
        delete(card)


def read_config(folder: Path) -> dict[str, Any]:
    """The description of a run; a `RunError` says why a folder cannot be read as a run."""
    if not folder.exists():
        how = f"make one with bayesify train --out {folder}, or in Python with fit(run=) or save"
        raise RunError(f"there is no run at {folder}: {how}")
    if not folder.is_dir():
        raise RunError(f"{folder} is a file, not a run folder")
    try:
        check_regular(folder / CONFIG)
        text = (folder / CONFIG).read_text(encoding="utf-8")
        config = pair.newer_config(folder) or json.loads(text)
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run: it has no {CONFIG}") from None
    except OSError as problem:
        raise RunError(f"{folder / CONFIG} cannot be read: {reason(problem)}") from None
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{folder / CONFIG} is damaged: {first_line(problem)}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise RunError(f"{folder} was not written by bayesify")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise RunError(
            f"{folder} has run version {config.get('version')}, but this bayesify reads up to {VERSION}: upgrade it"
        )
    _check_types(folder / CONFIG, config)
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} is incomplete: {MODEL} is missing")
    return config


def _check_types(path: Path, config: dict[str, Any]) -> None:
    """Refuse a configuration whose entries are of another type than the one that was written."""
    for content, types, where in ((config, _TYPES, ""), (config.get("data") or {}, _TYPES_OF_DATA, "data.")):
        if not isinstance(content, dict):
            continue
        for name, kinds in types.items():
            value = content.get(name)
            if name in content and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
                expected = " or ".join(_NAMES.get(kind, "null") for kind in kinds)
                raise RunError(f"{path} is damaged: {where}{name} must be {expected}, got {str(value)[:40]!r}")
    shapes = [("input_shapes", shape) for shape in config.get("input_shapes") or []]
    shapes += [("parameters", shape) for shape in (config.get("parameters") or {}).values()]
    for name, shape in shapes:
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise RunError(f"{path} is damaged: {name} must hold lists of whole numbers, got {str(shape)[:40]!r}")
        if name == "input_shapes" and math.prod(shape) > _MOST_NUMBERS:
            raise RunError(f"{path} is damaged: no input has the shape {str(shape)[:40]}")


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of `history.jsonl`; lines that are damaged are left out, and a warning names them."""
    path = folder / HISTORY
    try:
        check_regular(path)
        records, damaged = _parse_history(path.read_bytes() if path.exists() else b"")
    except OSError as problem:
        logger.warning("%s cannot be read: %s", path, reason(problem))
        return []
    if damaged:
        numbers = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        logger.warning("%s is damaged: left out line%s %s", path, "" if len(damaged) == 1 else "s", numbers)
    return records


def is_history(data: bytes) -> bool:
    """Whether these are the bytes of a whole `history.jsonl`."""
    return not _parse_history(data)[1]


def _parse_history(data: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    """The records, and the numbers of the lines that are none."""
    records: list[dict[str, Any]] = []
    damaged: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            record = None
        if _is_record(record):
            records.append(record)
        else:
            damaged.append(number)
    return records, damaged


def _is_record(record: Any) -> bool:
    """Whether this is what training writes for an epoch: the numbers that readers of a history count on."""
    return isinstance(record, dict) and all(
        isinstance(record.get(name, 0), int | float) for name in ("epoch", "step", "seconds", "loss", "nll", "kl")
    )


def check_no_other_content(folder: Path) -> None:
    """Raise an error for a folder that contains something other than a run."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if not names:
        return
    try:
        check_regular(folder / CONFIG)
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if CONFIG in names else {}
        is_run = config.get("format") == FORMAT if CONFIG in names else names <= _PARTS
    except (OSError, ValueError, AttributeError, RecursionError):
        is_run = False
    if not is_run:
        raise RunError(f"{folder} contains something that is not a run: it is not overwritten, choose another folder")


def versions() -> dict[str, str]:
    """The versions of Python, torch and bayesify, for the description of a run."""
    packages = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        packages["bayesify"] = version("bayesify")
    except PackageNotFoundError:
        packages["bayesify"] = "unknown"
    return packages
