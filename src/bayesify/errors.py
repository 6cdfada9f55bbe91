"""What we say when something cannot be done: one line that names what was given, expected and known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrainingError(RuntimeError):
    """Training stopped by itself; the message says why and what was kept."""


class RunError(ValueError):
    """A run folder that cannot be used, and why."""


def nearest(given: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known name whatever its case, or all of them where they are few."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(given.casefold(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; known: {', '.join(names)}" if len(names) <= 20 else ""


def choose(kind: str, given: str, known: Iterable[str]) -> str:
    """Return `given` if it is one of the known names, otherwise say which one was probably meant."""
    names = list(known)
    if given not in names:
        raise ValueError(f"unknown {kind} {given!r}{nearest(str(given), names)}")
    return given


def at_least(name: str, value: int, minimum: int) -> int:
    """A count that must reach a minimum."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return value


def whole_number(name: str, value: int) -> int:
    """A seed: an integer that 64 bits can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{name} must be an integer of at most 64 bits, got {value!r}")
    return value


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def first_line(problem: Exception) -> str:
    """The beginning of an exception's message."""
    text = str(problem).strip()
    return text.splitlines()[0][:120] if text else type(problem).__name__
