"""A run is a folder, version 1: what was trained, how, and on what; readable without running any code in it.

`config.json` describes the method, the network and the data; `model.safetensors` holds the tensors; `checkpoint/` lets
training go on; `history.jsonl` and `metrics.json` say how it went. Nothing is pickled. Methods are written into such a
folder and read from it in `bayesify.methods.saving`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bayesify.errors import RunError, first_line

VERSION = 1
FORMAT = "bayesify-run"
CONFIG, MODEL, HISTORY, METRICS = "config.json", "model.safetensors", "history.jsonl", "metrics.json"
STATE = Path("checkpoint") / "state.safetensors"
CARD, CARD_MARK = "README.md", "library_name: bayesify"
_PARTS = {CONFIG, MODEL, HISTORY, METRICS, "checkpoint", "report.html", "report.json"}


def claim(folder: Path, *, overwrite: bool) -> Path:
    """Make sure that a folder can take a new run; nothing in it is touched."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not overwrite:
            raise RunError(f"{folder} is not empty: choose another folder, or replace it (overwrite=True, --overwrite)")
        check_ours(folder)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder


def clear(folder: Path) -> None:
    """Take away what an earlier run left beside its model: a checkpoint, scores and pages that are no longer true."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    (folder / HISTORY).unlink(missing_ok=True)
    forget_scores(folder)


def forget_scores(folder: Path) -> None:
    """Take away what was said of a model that training now changes: its scores, its pages and its card."""
    for name in _PARTS - {CONFIG, MODEL, HISTORY, "checkpoint"}:
        (folder / name).unlink(missing_ok=True)
    # A model card of ours goes too; a README that somebody wrote stays.
    card = folder / CARD
    if card.is_file() and CARD_MARK in card.read_text(encoding="utf-8", errors="replace")[:2000]:
        card.unlink()


def read_config(folder: Path) -> dict[str, Any]:
    """A run's description, or one clear line on why the folder is not a run that we can read."""
    if not folder.exists():
        raise RunError(f"there is no run at {folder}")
    if not folder.is_dir():
        raise RunError(f"{folder} is a file, not a run folder")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run: it has no {CONFIG}") from None
    except (OSError, ValueError) as problem:
        raise RunError(f"{folder / CONFIG} is damaged: {first_line(problem)}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise RunError(f"{folder} was not written by bayesify")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise RunError(
            f"{folder} is a run of version {config.get('version')}, this bayesify reads up to {VERSION}: upgrade it"
        )
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} is half written: {MODEL} is missing")
    return config


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of `history.jsonl`, as far as they are whole."""
    records: list[dict[str, Any]] = []
    path = folder / HISTORY
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def check_ours(folder: Path) -> None:
    """Refuse a folder that holds something else than a run."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder")
    found = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if not found:
        return
    try:
        held = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if CONFIG in found else {}
        ours = held.get("format") == FORMAT if CONFIG in found else found <= _PARTS
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise RunError(f"{folder} holds something that is not a run: it will not be overwritten")


def versions() -> dict[str, str]:
    """The versions of Python, torch and bayesify, for the description of a run."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        found["bayesify"] = version("bayesify")
    except PackageNotFoundError:
        found["bayesify"] = "unknown"
    return found
