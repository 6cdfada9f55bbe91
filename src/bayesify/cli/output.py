"""The output of a command: results on standard output, everything else as one line on standard error."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from bayesify.errors import RunError, TrainingError, nearest
from bayesify.files import plain, replacing

FAILED, IMPOSSIBLE = 1, 2


class CommandError(Exception):
    """An error with its exit code."""

    def __init__(self, line: str, code: int = IMPOSSIBLE) -> None:
        super().__init__(line)
        self.code = code


class Beginning(MetaPathFinder):
    """One line on standard error at the moment when PyTorch begins to load, which takes seconds.

    It is for a person who waits at a terminal, and is printed nowhere else: standard error in a log or a pipe has what
    went wrong alone. A command that is refused before it computes prints its error alone.

    Args:
        command: the name of the command.

    """

    def __init__(self, command: str) -> None:
        self.what = command

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Print the line before torch is imported; others find the module."""
        if fullname == "torch":
            self.forget()
            if sys.stderr.isatty():
                say(f"{self.what}: loading PyTorch")

    def forget(self) -> None:
        """Print nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def begin(command: str) -> Beginning:
    """Announce that PyTorch loads, if a command loads it."""
    beginning = Beginning(command)
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, beginning)
    return beginning


def say(line: str) -> None:
    """Print one line for people on standard error."""
    print(f"bayesify: {line}", file=sys.stderr, flush=True)


def say_beginning(line: str) -> None:
    """Say what begins: with the line about PyTorch, or, where it is loaded already, to a person at a terminal."""
    waiting = [finder for finder in sys.meta_path if isinstance(finder, Beginning)]
    for beginning in waiting:
        beginning.what = line
    if not waiting and sys.stderr.isatty():
        print(f"{line} ...", file=sys.stderr, flush=True)


def emit(result: dict[str, Any]) -> None:
    """Print one JSON object on standard output; numbers that JSON cannot hold become null."""
    # Flushed, because a server prints its address and keeps running, and the reader of a pipe waits for that line.
    print(json.dumps(plain(result), allow_nan=False), flush=True)


def write_csv(file: Path, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as a CSV file, completely or not at all; a pipe or a device is written to directly."""
    with (
        replacing(file) if file.is_file() or not file.exists() else nullcontext(file) as place,
        place.open("w", newline="", encoding="utf-8") as stream,
    ):
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
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)", line)
    if extra:
        return _unexpected(extra[1], command)
    details = getattr(problem.__cause__, "errors", None)
    if option is None and details is not None and getattr(problem, "param", None) is not None:
        return _misread(problem, details())
    return line[:1].lower() + line[1:]


def _unexpected(words: str, command: Any) -> str:
    """What a command that takes other arguments, or none, says of the words that are too many."""
    name = getattr(command, "name", None) or "this command"
    takes = any(parameter.param_type_name == "argument" for parameter in getattr(command, "params", []))
    options = {opt for parameter in getattr(command, "params", []) for opt in parameter.opts}
    if takes:
        return f"{name} takes no more arguments, got {words!r}: see bayesify {name} --help"
    hint = f"give data as --data {words.split(maxsplit=1)[0]}" if "--data" in options else f"see bayesify {name} --help"
    return f"{name} takes options alone, got {words!r}: {hint}"


def _misread(problem: Any, details: Sequence[dict[str, Any]]) -> str:
    """The option, what it takes and the given value, where a text is no number."""
    first = details[0] if details else {}
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false"}
    kind = kinds.get(str(first.get("type", "")).partition("_")[0])
    message = " ".join(str(first.get("msg", problem.message)).split())
    expected = f"must be {kind}" if kind else message[:1].lower() + message[1:]
    name = problem.param.opts[0] if problem.param.param_type_name == "option" else problem.param.human_readable_name
    return f"{name} {expected}, got {first.get('input')!r}"
