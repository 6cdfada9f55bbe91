"""The one error that data raises: a line that says what was given, what was expected and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


class DataError(ValueError):
    """Data that is missing, damaged, or not what was asked for."""


def unknown_name(what: str, given: object, known: Iterable[str], hint: str = "") -> DataError:
    """The error for a name that is not known, with the nearest known one."""
    return DataError(f"unknown {what} {given!r}{nearest(str(given), known)}{hint}")


def one_of(what: str, given: object, allowed: Iterable[object]) -> None:
    """Refuse a setting outside its few allowed values."""
    choices = list(allowed)
    if given not in choices:
        raise DataError(f"{what} must be one of {', '.join(map(repr, choices))}, got {given!r}")
