"""The rows of a table as text, which every reader of tables returns."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bayesify.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
# In a column of numbers or dates these words can mean nothing else; in a column of text they may be categories.
MISSING_NUMBERS = MISSING | {"none", "nil", "nat", "<na>", "#n/a", "-", "--", "missing", "unknown"}
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Rows:
    """The cells of a table as text.

    Args:
        what: the file, for errors.
        names: names of the columns; `column 1`, ... without a header.
        cells: one list of texts for each row, without surrounding blanks.
        lines: the line of the file where each row ends.
        header: whether the names are from the file.
        decimal_comma: whether `1,5` is a number.
        unit: what `lines` counts, for errors: lines of a file, or rows.
        dropped: how many rows were left out by `without`.

    """

    what: str
    names: tuple[str, ...]
    cells: list[list[str]]
    lines: list[int]
    header: bool
    decimal_comma: bool = False
    unit: str = "line"
    dropped: int = 0

    def without(self, rows: Sequence[int]) -> Rows:
        """The table without some of its rows."""
        if not rows:
            return self
        gone = set(rows)
        kept = [row for row in range(len(self.cells)) if row not in gone]
        cells, lines = [self.cells[row] for row in kept], [self.lines[row] for row in kept]
        return replace(self, cells=cells, lines=lines, dropped=self.dropped + len(gone))

    def where(self, row: int, column: int) -> str:
        """The position of a cell, for errors."""
        return f"{self.what}, {self.unit} {self.lines[row]}, column {self.names[column]!r}"

    def number(self, row: int, column: int) -> float | None:
        """A cell as a number, or None where it is text; missing and infinite values are errors."""
        cell = self.cells[row][column]
        if cell.casefold() in MISSING:
            given = f" ({cell!r})" if cell else ""
            raise DataError(f"{self.where(row, column)}: missing value{given}; fill it in or remove the row")
        value = as_number(cell, decimal_comma=self.decimal_comma)
        if value is not None and not math.isfinite(value):
            raise DataError(f"{self.where(row, column)}: expected a finite number, got {cell!r}")
        return value


def check_size(numbers: Iterable[float], largest: float, what: str) -> None:
    """Refuse numbers so large that their squares, or they themselves, are infinite where they are computed with."""
    size = max(map(abs, numbers), default=0.0)
    if size > largest:
        raise DataError(f"{what}: numbers up to {size:.3g} are too large to compute with: rescale it, to about 1")


def is_missing(cell: str, *, words: bool = False) -> bool:
    """Whether a cell has no value; `words` allows the words for it that only columns of numbers and dates have."""
    return cell.casefold() in (MISSING_NUMBERS if words else MISSING)


def as_number(cell: str, *, decimal_comma: bool = False) -> float | None:
    """A text as a number, or None."""
    if decimal_comma and _DECIMAL_COMMA.fullmatch(cell):
        cell = cell.replace(",", ".")
    # Python reads 1_000 as a number, which no table means.
    if "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None
