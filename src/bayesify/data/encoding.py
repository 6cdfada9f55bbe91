"""Cells of a table as raw numbers, by the columns of training; what training never saw is a reason not to predict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.data.columns import Column, hash_of
from bayesify.data.dates import read_date
from bayesify.data.errors import DataError
from bayesify.data.rows import Rows, as_number, is_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

TRUE_WORDS = ("true", "yes", "y", "t", "on", "1")
FALSE_WORDS = ("false", "no", "n", "f", "off", "0")


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a table for a trained network.

    Args:
        raw: raw rows, `[n, columns]` float64; give them to `Preparation.apply`.
        reasons: for each row why it cannot be predicted, or None. The raw row of such a reason means nothing.

    Examples:
        >>> preparation = bf.data.load("moons").prepare().preparation
        >>> rows = bf.data.encode_rows([{"x1": 1, "x2": 2}, {"x1": "one", "x2": 2}], preparation)
        >>> rows.reasons
        [None, "column 'x1': expected a number, got 'one'"]

    """

    raw: Tensor
    reasons: list[str | None]


def encode(rows: Rows, inputs: Sequence[int], columns: Sequence[Column], *, strict: bool = True) -> EncodedRows:
    """The raw rows of a table.

    Args:
        rows: the cells.
        inputs: for each column the position of its cells.
        columns: the columns of training.
        strict: raise an error for the first cell that training never saw, instead of a reason in its row.

    Returns:
        Raw rows with their reasons.

    Raises:
        DataError: with `strict`, for a cell that training never saw.

    """
    raw = torch.zeros(len(rows.cells), len(columns), dtype=torch.float64)
    reasons: list[str | None] = [None] * len(rows.cells)
    for place, (position, column) in enumerate(zip(inputs, columns, strict=True)):
        reader = CellReader(column, decimal_comma=rows.decimal_comma)
        values = []
        for row, cells in enumerate(rows.cells):
            value, reason = reader.read(cells[position])
            if reason is not None:
                if strict:
                    raise DataError(f"{rows.where(row, position)}: {reason}")
                reasons[row] = reasons[row] or f"column {column.name!r}: {reason}"
            values.append(value)
        raw[:, place] = torch.tensor(values, dtype=torch.float64)
    return EncodedRows(raw, reasons)


class CellReader:
    """Reads the cells of one column.

    Args:
        column: the column of training.
        decimal_comma: whether `1,5` is a number.

    """

    def __init__(self, column: Column, *, decimal_comma: bool = False) -> None:
        self.column = column
        self._decimal_comma = decimal_comma
        self._codes = {category: float(code) for code, category in enumerate(column.categories)}
        for spelling, category in column.aliases:
            self._codes.setdefault(spelling, self._codes[category])
        folded: dict[str, set[float]] = {}
        for category, code in self._codes.items():
            folded.setdefault(category.casefold(), set()).add(code)
        # A spelling in other capitals is the same category, unless training had two that differ in nothing else.
        self._folded = {category: codes.pop() for category, codes in folded.items() if len(codes) == 1}

    def read(self, cell: str) -> tuple[float, str | None]:
        """The raw value of a cell, and the reason why it has none.

        Args:
            cell: its text.

        Returns:
            The value with None, or zero with a reason.

        """
        column = self.column
        if column.categories and cell in self._codes:
            return self._codes[cell], None
        if is_missing(cell, words=not column.categories and not column.buckets):
            if column.categories and "" in self._codes:
                return self._codes[""], None
            given = f" ({shown(cell)})" if cell else ""
            return (math.nan, None) if column.gaps else (0.0, f"missing value{given}, which training never had")
        if column.categories:
            code = self._folded.get(cell.casefold())
            return (0.0, self._unknown(cell)) if code is None else (code, None)
        if column.date:
            seconds = read_date(cell, column.date)
            return (0.0, f"expected a date as in training, got {shown(cell)}") if seconds is None else (seconds, None)
        if column.buckets:
            return hash_of(cell), None
        number = as_number(cell, decimal_comma=self._decimal_comma)
        if number is None:
            return 0.0, f"expected a number, got {shown(cell)}"
        return (number, None) if math.isfinite(number) else (0.0, f"expected a finite number, got {shown(cell)}")

    def _unknown(self, cell: str) -> str:
        known = [category for category in self.column.categories if category]
        listed = f"{', '.join(known[:10])}{', ...' if len(known) > 10 else ''}"
        meant = boolean(cell)
        if meant is not None:
            same = [category for category in known if boolean(category) == meant]
            if len(same) == 1 and len(known) == 2:
                return f"unknown category {shown(cell)}; known: {listed} (write {same[0]} if that is meant)"
        return f"unknown category {shown(cell)}; known: {listed}"


def shown(cell: str) -> str:
    """A cell in quotes, a long one cut short."""
    return repr(cell if len(cell) <= 40 else f"{cell[:37]}...")


def boolean(cell: str) -> bool | None:
    """What a usual spelling of a boolean means; None for other texts."""
    folded = cell.casefold()
    return True if folded in TRUE_WORDS else False if folded in FALSE_WORDS else None
