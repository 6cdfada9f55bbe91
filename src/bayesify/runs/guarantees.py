"""`guarantees.json` in a run folder: the recalibration and the guarantees that were made for its weights.

{"format": "bayesify-guarantees", "version": 1, "checksum": "sha256:...", "weights": "sha256:...", "content": {...}}

`checksum` is that of the content and the weights' digest. `weights` is the digest of the model's tensors: a guarantee
says nothing about other weights.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from bayesify.errors import RunError, first_line
from bayesify.files import check_regular, delete, reason, write_json
from bayesify.runs.folder import GUARANTEES

FORMAT = "bayesify-guarantees"
VERSION = 1


def write(folder: Path, content: dict[str, Any], weights: str) -> None:
    """Write the guarantees of a run; an empty content deletes the file."""
    path = folder / GUARANTEES
    if not content:
        delete(path)
        return
    about = {"format": FORMAT, "version": VERSION, "checksum": checksum(content, weights), "weights": weights}
    write_json(path, about | {"content": content})


def read(folder: Path) -> tuple[dict[str, Any], str] | None:
    """The guarantees of a run and the digest of its weights; None where it has none.

    Raises:
        RunError: the file is damaged, or of a later version.

    """
    path = folder / GUARANTEES
    try:
        check_regular(path)
        plain = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RunError(f"{path} cannot be read: {reason(problem)}") from None
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{path} is damaged: {first_line(problem)}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise RunError(f"{path} was not written by bayesify: delete it to use the run without guarantees")
    if not isinstance(plain.get("version"), int) or plain["version"] > VERSION:
        raise RunError(
            f"{path} has version {plain.get('version')}, but this bayesify reads up to {VERSION}: upgrade it"
        )
    content, weights = plain.get("content"), plain.get("weights")
    if not isinstance(content, dict) or not isinstance(weights, str):
        raise RunError(f"{path} is damaged: content and weights are missing")
    try:
        expected = checksum(content, weights)
    except ValueError as problem:  # NaN or infinity, which are never written
        raise RunError(f"{path} is damaged: {first_line(problem)}") from None
    if plain.get("checksum") != expected:
        raise RunError(f"{path} is damaged: its content does not have its checksum; certify the run again")
    _check_types(content, path)
    return content, weights


def checksum(content: dict[str, Any], weights: str) -> str:
    """The digest of a content and of the weights that it belongs to."""
    text = json.dumps([content, weights], sort_keys=True, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _check_types(content: dict[str, Any], path: Path) -> None:
    """Refuse what no version has written: a checksum can be right for any content."""
    wrong = [name for name, entry in content.items() if entry is not None and not isinstance(entry, dict)]
    used = content.get("used") or {}
    if not wrong and not all(_texts(used.get(name, [])) for name in ("rows", "what")):
        wrong = ["used"]
    if wrong:
        raise RunError(f"{path} is damaged: {wrong[0][:40]!r} is not what bayesify writes; certify the run again")


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
