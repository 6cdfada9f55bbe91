"""The output of a command: results on standard output, everything else as one line on standard error."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bayesify.errors import RunError, TrainingError, nearest
from bayesify.files import plain

FAILED, IMPOSSIBLE = 1, 2


class CommandError(Exception):
    """An error with its exit code."""

    def __init__(self, line: str, code: int = IMPOSSIBLE) -> None:
        super().__init__(line)
        self.code = code


def begin() -> None:
    """Say to a person at a terminal that the command has started, because PyTorch takes seconds to load."""
    if "torch" not in sys.modules and sys.stderr.isatty():
        say("loading PyTorch")


def say(line: str) -> None:
    """Print one line for people on standard error."""
    print(f"bayesify: {line}", file=sys.stderr, flush=True)


def say_beginning(line: str) -> None:
    """Say to a person at a terminal what begins: loading torch takes seconds, in which nothing else would be seen."""
    if sys.stderr.isatty():
        print(f"{line} ...", file=sys.stderr, flush=True)


def emit(result: dict[str, Any]) -> None:
    """Print one JSON object on standard output; numbers that JSON cannot hold become null."""
    # Flushed, because a server prints its address and keeps running, and the reader of a pipe waits for that line.
    print(json.dumps(plain(result), allow_nan=False), flush=True)


def write_csv(file: Path, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as a CSV file."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)


def explain(problem: Exception) -> tuple[int, str]:
    """The exit code and the line of an error."""
    if isinstance(problem, CommandError):
        return problem.code, str(problem)
    if hasattr(problem, "format_message"):
        return IMPOSSIBLE, _usage(problem)
    line = " ".join(str(problem).split())
    if isinstance(problem, RunError) and line.startswith("cannot write") and "space" in line:
        return FAILED, line
    if isinstance(problem, TrainingError):
        return FAILED, line
    if isinstance(problem, ValueError | TypeError):
        return IMPOSSIBLE, line
    if isinstance(problem, OSError):
        return FAILED, f"{problem.filename or 'a file'}: {problem.strerror or line}"
    if _is_out_of_memory(problem):
        size = re.search(r"allocate ([\d.]+ ?[KMGT]?i?B|\d+ bytes)", line)
        wanted = f" ({size[1]} in one piece)" if size else ""
        return FAILED, f"not enough memory{wanted}: try a smaller --batch-size, fewer --draws or a smaller network"
    reason = f"{type(problem).__name__}: {line}" if line else type(problem).__name__
    return FAILED, f"unexpected {reason} (set BAYESIFY_TRACEBACK=1 to see where, and please report it)"


def _is_out_of_memory(problem: Exception) -> bool:
    from bayesify.training.recovery import is_out_of_memory

    return is_out_of_memory(problem)


def _usage(problem: Any) -> str:
    """The message of the option parser as one line, with the nearest flag or command that exists."""
    line = " ".join(str(problem.format_message()).split()).rstrip(".")
    command = getattr(getattr(problem, "ctx", None), "command", None)
    option = getattr(problem, "option_name", None)
    if option and line.startswith("No such option"):
        known = [name for parameter in getattr(command, "params", []) for name in parameter.opts]
        return f"there is no option {option}{nearest(option, known) or '; see --help'}"
    if line.startswith("No such command"):
        wrong = line.split("'")[1] if "'" in line else line
        return f"there is no command {wrong!r}{nearest(wrong, getattr(command, 'commands', {}))}"
    return line[:1].lower() + line[1:]
