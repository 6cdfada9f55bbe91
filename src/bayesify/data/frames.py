"""Frames in memory as the rows of a table: pandas, polars, Arrow, rows as dictionaries, and the result of a query.

None of these libraries is imported: what a frame has is enough to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from bayesify.data.errors import DataError
from bayesify.data.rows import Rows


def is_frame(value: Any) -> bool:
    """Whether a value is a pandas or polars frame, an Arrow table, or a list of dictionaries."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return hasattr(value, "column_names") or (hasattr(value, "columns") and hasattr(value, "__getitem__"))


def rows_of_frame(frame: Any, what: str = "the table") -> Rows:
    """The rows of a frame.

    Args:
        frame: a pandas or polars frame, an Arrow table, or a list of dictionaries with the same keys.
        what: what to call it in errors.

    Returns:
        The cells as text; None, NaN and NaT are missing.

    Raises:
        DataError: two columns have one name, a cell is no plain value, or there are no rows.

    """
    if isinstance(frame, list | tuple):
        names = list(frame[0])
        for number, row in enumerate(frame):
            if set(row) != set(names):
                raise DataError(f"{what}, row {number}: expected the keys of the first row, {', '.join(names)}")
        columns: list[Sequence[Any]] = [[row[name] for row in frame] for name in names]
    else:
        names, columns = _columns(frame)
    return rows_of_columns([str(name).strip() for name in names], columns, what)


def rows_of_columns(names: Sequence[str], columns: Sequence[Sequence[Any]], what: str) -> Rows:
    """The rows of a table from the values of its columns."""
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{what}: two columns are named {name!r}")
    texts = [_texts(values, name, what) for name, values in zip(names, columns, strict=True)]
    cells = [list(row) for row in zip(*texts, strict=True)]
    if not cells:
        raise DataError(f"{what}: expected rows, got none")
    return Rows(what, tuple(names), cells, list(range(1, len(cells) + 1)), header=True, unit="row")


def cell_text(value: Any) -> str:
    """A value as the text of a cell.

    Args:
        value: a number, text, a boolean, a date, or nothing (None, NaN, NaT).

    Returns:
        The text; empty where there is no value.

    Raises:
        TypeError: the value is something else, such as a list.

    """
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return ""
    if isinstance(value, str):
        return value.strip()
    if type(value).__name__ == "bool_" or isinstance(value, bool):
        return str(bool(value))
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real | Decimal):
        number = float(value)
        return "" if math.isnan(number) else repr(number)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    raise TypeError(f"expected a number, text, a boolean or a date, got {type(value).__name__}")


def _columns(frame: Any) -> tuple[list[Any], list[Sequence[Any]]]:
    if hasattr(frame, "column_names"):
        return list(frame.column_names), [frame.column(place).to_pylist() for place in range(len(frame.column_names))]
    names = list(frame.columns)
    if hasattr(frame, "iloc"):
        return names, [frame.iloc[:, place].tolist() for place in range(len(names))]
    return names, [frame[name].to_list() for name in names]


def _texts(values: Sequence[Any], name: str, what: str) -> list[str]:
    texts = []
    for number, value in enumerate(values, 1):
        try:
            texts.append(cell_text(value))
        except TypeError as problem:
            raise DataError(f"{what}, row {number}, column {name!r}: {problem}") from None
    return texts
