"""Dates and times in tables: the ways they are written, and their value in seconds since 1970 (UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bayesify.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)?"
_ISO = re.compile(r"\d{4}-\d{2}(-\d{2}.*)?")
_YEAR_FIRST = re.compile(rf"(\d{{4}})[/.](\d{{1,2}})[/.](\d{{1,2}}){_TIME}")
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([/.-])(\d{{1,2}})\2(\d{{4}}){_TIME}")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")


def read_date(text: str, how: str) -> float | None:
    """The seconds since 1970 of a date or time; a time zone is respected, without one the date counts as UTC.

    Args:
        text: as `2024-03-31 08:15`.
        how: a name in `FORMATS`.

    Returns:
        Seconds, or None where the text is no such date.

    """
    try:
        moment = FORMATS[how](text)
    except (ValueError, OverflowError):
        return None
    return None if moment is None else (moment - _EPOCH).total_seconds()


def date_format(texts: Sequence[str]) -> str | None:
    """The name of the format in which all of the texts are dates; None where there is none.

    Raises:
        DataError: days and months cannot be told apart, as in 03/04/2024.

    """
    matching = [how for how in FORMATS if all(read_date(text, how) is not None for text in texts)]
    if {"day first", "month first"} <= set(matching):
        swapped = next((text for text in texts if read_date(text, "day first") != read_date(text, "month first")), None)
        if swapped is not None:
            raise DataError(
                f"{swapped!r} may be a day and a month or a month and a day: write dates as 2024-03-31, or use the "
                "column as categories (categorical=, --categorical)"
            )
    return matching[0] if matching else None


def _iso(text: str) -> datetime | None:
    if _ISO.fullmatch(text) is None:
        return None
    # Months alone are not ISO dates for Python.
    moment = datetime.fromisoformat(f"{text}-01" if len(text) == 7 else text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _year_first(text: str) -> datetime | None:
    found = _YEAR_FIRST.fullmatch(text)
    if found is None:
        return None
    year, month, day, *clock = found.groups(default="0")
    return _moment(year, month, day, clock)


def _day_first(text: str) -> datetime | None:
    found = _YEAR_LAST.fullmatch(text)
    if found is None:
        return None
    day, _, month, year, *clock = found.groups(default="0")
    return _moment(year, month, day, clock)


def _month_first(text: str) -> datetime | None:
    found = _YEAR_LAST.fullmatch(text)
    # With points, days come first everywhere.
    if found is None or found[2] == ".":
        return None
    month, _, day, year, *clock = found.groups(default="0")
    return _moment(year, month, day, clock)


def _clock(text: str) -> datetime | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = map(int, found.groups(default="0"))
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return _EPOCH + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _moment(year: str, month: str, day: str, clock: Sequence[str]) -> datetime:
    hours, minutes, seconds = map(int, clock)
    return datetime(int(year), int(month), int(day), hours, minutes, seconds, tzinfo=UTC)


# The ways to write a date, the most certain first.
FORMATS: dict[str, Callable[[str], datetime | None]] = {
    "iso": _iso,
    "year first": _year_first,
    "day first": _day_first,
    "month first": _month_first,
    "clock": _clock,
}
