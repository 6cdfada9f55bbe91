"""Errors and checks of arguments: one line that says what was given and what was expected."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable
from typing import Any


class TrainingError(RuntimeError):
    """Training failed; the message says why and what was saved."""


class RunError(ValueError):
    """A run folder cannot be used; the message says why."""


class BayesifyWarning(UserWarning):
    """A fit that should not be trusted as it is; the message says why and what to do.

    `fit` and `resume` give these warnings at their end, each once, by `warnings.warn`. The same sentences are in
    `method.warnings`, by kind. Turn them into errors where nobody reads them:

        warnings.simplefilter("error", bf.BayesifyWarning)

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     method = bf.Variational(net, "categorical", prior="normal:1")
        ...     history = method.fit((x, y), epochs=2, learning_rate=1e-9, progress=False)
        >>> {warning.category.__name__ for warning in caught}
        {'BayesifyWarning'}

    """


def nearest(given: str, known: Iterable[str]) -> str:
    """The end of an error message: a name that is really similar, ignoring case, or all names if there are at most 20.

    Similar is a name that shares most of its letters with the given one, in order, or that begins or ends with it. The
    dashes of options do not count.
    """
    names = list(known)
    folded = {name.casefold().lstrip("-"): name for name in names}
    wanted = given.casefold().lstrip("-")
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    if not close and len(wanted) >= 3:
        close = [name for name in folded if name.startswith(wanted) or name.endswith(wanted)]
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; known: {', '.join(names)}" if len(names) <= 20 else ""


def choose(kind: str, given: str, known: Iterable[str]) -> str:
    """Return `given` if it is a known name; otherwise raise an error with the closest one."""
    names = list(known)
    if given not in names:
        raise ValueError(f"unknown {kind} {given!r}{nearest(str(given), names)}")
    return given


def plain_number(value: Any) -> Any:
    """A number of NumPy as the Python number that it is, which JSON can hold and which does not overflow.

    Anything else is returned as it is.
    """
    if isinstance(value, bool) or type(value) in {int, float}:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def take_plain_numbers(settings: Any) -> None:
    """Replace the numbers of NumPy in the fields of a dataclass, a frozen one too, by Python numbers."""
    for name, value in vars(settings).items():
        object.__setattr__(settings, name, plain_number(value))  # a frozen dataclass allows no other way


def at_least(name: str, value: int, minimum: int) -> int:
    """Return an integer of at least `minimum`, as a Python number; otherwise raise an error."""
    number = plain_number(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return number


def whole_number(name: str, value: int) -> int:
    """Return an integer of at most 64 bits, such as a seed, as a Python number; otherwise raise an error."""
    number = plain_number(value)
    if isinstance(number, bool) or not isinstance(number, int) or not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"{name} must be an integer of at most 64 bits, got {value!r}")
    return number


def positive(name: str, value: float) -> float:
    """Return a finite number above 0, as a Python number; otherwise raise an error."""
    number = plain_number(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(number)


def counted(number: int, noun: str) -> str:
    """A number of things in words: `1 example`, `1,200 examples`, `2 classes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


_LONGEST = 120


def first_line(problem: Exception) -> str:
    """The first line of the message of an exception; a long one ends after a word, with three dots.

    Examples:
        >>> from bayesify.errors import first_line
        >>> first_line(ValueError("word " * 100))[-14:]
        'word word...'

    """
    text = str(problem).strip()
    if not text:
        return type(problem).__name__
    line = text.splitlines()[0]
    if len(line) <= _LONGEST:
        return line
    start = line[: _LONGEST - 3]
    words = start if line[len(start)].isspace() else start.rpartition(" ")[0] or start
    return f"{words.rstrip(' ,;:')}..."
