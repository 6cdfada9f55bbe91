"""The file of results: one JSON line for each cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "cells.jsonl"
# Beside it: what a reader of the page has to know about these cells, one sentence a line.
NOTES = "notes.txt"
# Beside it: the results of an earlier page, some of whose fits the file lacks.
EARLIER = "earlier.json"


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a file of results by key; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        found[line["key"]] = line
    return found


def notes_in(folder: Path) -> list[str]:
    """The sentences about the cells of a folder; none where there is no file of them."""
    path = folder / NOTES
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] if path.is_file() else []


def earlier_in(folder: Path) -> dict[str, Any]:
    """The results of an earlier page; empty where there is no file of them."""
    path = folder / EARLIER
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
