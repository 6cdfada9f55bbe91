"""A run folder, version 1: what was trained, how, and on which data.

`config.json` describes the method, the network and the data; `model.safetensors` has the tensors; `checkpoint/` is for
resuming; `history.jsonl` and `metrics.json` have the course and the scores of training. Nothing is pickled, so reading
a run never runs code from it. `bayesify.methods.saving` writes methods into such a folder and reads them.
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
    """Check that a folder can be used for a new run, without changing what is in it."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not overwrite:
            raise RunError(f"{folder} is not empty: choose another folder, or replace it (overwrite=True, --overwrite)")
        check_no_other_content(folder)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return folder


def clear(folder: Path) -> None:
    """Delete what an earlier run left beside its model: its checkpoint, history, scores and pages."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    (folder / HISTORY).unlink(missing_ok=True)
    delete_scores(folder)


def delete_scores(folder: Path) -> None:
    """Delete what no longer describes a model that is trained further: its scores, pages and model card."""
    for name in _PARTS - {CONFIG, MODEL, HISTORY, "checkpoint"}:
        (folder / name).unlink(missing_ok=True)
    # A README that a person wrote stays.
    card = folder / CARD
    if card.is_file() and CARD_MARK in card.read_text(encoding="utf-8", errors="replace")[:2000]:
        card.unlink()


def read_config(folder: Path) -> dict[str, Any]:
    """The description of a run; a `RunError` says why a folder cannot be read as a run."""
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
            f"{folder} has run version {config.get('version')}, but this bayesify reads up to {VERSION}: upgrade it"
        )
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} is incomplete: {MODEL} is missing")
    return config


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The records of `history.jsonl`, up to the first incomplete line."""
    records: list[dict[str, Any]] = []
    path = folder / HISTORY
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def check_no_other_content(folder: Path) -> None:
    """Raise an error for a folder that contains something other than a run."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.is_dir() else set()
    if not names:
        return
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if CONFIG in names else {}
        is_run = config.get("format") == FORMAT if CONFIG in names else names <= _PARTS
    except (OSError, ValueError, AttributeError):
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
