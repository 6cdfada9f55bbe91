"""The reader of tables in delimited text, such as CSV: every error names the line."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.expansion import read_expanded
from bayesify.data.rows import Rows, as_number, is_missing

if TYPE_CHECKING:
    from collections.abc import Collection


def read_delimited(
    source: str | Path | TextIO,
    *,
    separator: str | None = None,
    header: bool | None = None,
    expected: Collection[str] = (),
) -> Rows:
    """All rows of a CSV or TSV file, gzipped or not, or of an open text stream.

    Separator and header are found automatically unless given. With `expected` names, the first row is a header if it
    has one of them.
    """
    what, text = _text(source)
    if not text.strip():
        raise DataError(f"{what}: the file is empty")
    if isinstance(source, str | Path) and Path(source).name.lower().removesuffix(".gz").endswith(".tsv"):
        separator = separator or "\t"
    separator = separator or _separator(text)
    rows, lines = [], []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{what}, line {reader.line_num}: not readable as CSV ({error})") from error
    if not rows:
        raise DataError(f"{what}: expected rows, got only empty cells")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise DataError(f"{what}, line {line}: expected {len(rows[0])} cells as in line {lines[0]}, got {len(row)}")
    decimal_comma = separator != ","
    if header is None:
        named = not set(expected).isdisjoint(rows[0])
        header = named if expected else _has_header(rows, decimal_comma=decimal_comma)
    first_row = rows[0] if header else [""] * len(rows[0])
    names = tuple(name or f"column {number}" for number, name in enumerate(first_row, 1))
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{what}, line {lines[0]}: two columns are named {twice!r}")
    skip = int(header)
    if len(rows) == skip:
        raise DataError(f"{what}: expected rows below the header, got none")
    return Rows(what, names, rows[skip:], lines[skip:], header, decimal_comma)


def _text(source: str | Path | TextIO) -> tuple[str, str]:
    if not isinstance(source, str | Path):
        return str(getattr(source, "name", "input")), source.read().removeprefix("\ufeff")
    path = Path(source)
    with explain_damage(path):
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(path) as stream:
                content = read_expanded(path, stream)
    if b"\0" in content:
        raise DataError(f"{path}: not a text file in UTF-8 (it has zero bytes); save it as CSV in UTF-8")
    try:
        return str(path), content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from error


def _separator(text: str) -> str:
    first = [line for line in text.splitlines()[:50] if line.strip()][:20]
    for separator in ("\t", ";", ",", "|"):
        try:
            widths = {len(row) for row in csv.reader(first, delimiter=separator, skipinitialspace=True)}
        except csv.Error:
            # A long line without this separator is one cell, larger than the csv module allows.
            continue
        if widths and min(widths) > 1:
            return separator
    return ","


def _has_header(rows: list[list[str]], *, decimal_comma: bool) -> bool:
    """Whether the first row is a header: it has no numbers, and there are numbers below it.

    Whole numbers may be names too (years, or 0, 1, 2, ...): see `_numbers_are_names`. In a table of texts only, the
    cells of a header must differ, and none may appear again in its column.
    """
    first, rest = rows[0], rows[1:]
    if any(cell and as_number(cell, decimal_comma=decimal_comma) is not None for cell in first):
        return _numbers_are_names(first, rest, decimal_comma=decimal_comma)
    if any(as_number(cell, decimal_comma=decimal_comma) is not None for row in rest for cell in row):
        return True
    seen = [set(column) for column in zip(*rest, strict=True)]
    if not rest:
        return True
    return len(set(first)) == len(first) and not any(a in b for a, b in zip(first, seen, strict=True))


def _numbers_are_names(first: list[str], rest: list[list[str]], *, decimal_comma: bool) -> bool:
    """Whether a first row with numbers is a header.

    Its numbers must be whole, different, and absent from their columns. Beside them there must be a text above a column
    of numbers; or else they count up one by one, as years do and the names that pandas gives.
    """
    if not rest or len(set(first)) != len(first):
        return False
    numbers = [cell for cell in first if as_number(cell, decimal_comma=decimal_comma) is not None]
    if not all(cell.isascii() and cell.isdigit() for cell in numbers):
        return False
    columns = list(zip(*rest, strict=True))
    in_turn = all(int(after) == int(before) + 1 for before, after in pairwise(numbers))
    if len(numbers) >= 3 and in_turn and numbers[0] in {"0", "1"} and rest[0] != first:
        return len(numbers) + first.count("") == len(first) or _text_above_numbers(first, columns, decimal_comma)
    if any(cell in column for cell, column in zip(first, columns, strict=True) if cell in numbers):
        return False
    if _text_above_numbers(first, columns, decimal_comma):
        return True
    return len(numbers) >= 3 and in_turn


def _text_above_numbers(first: list[str], columns: list[tuple[str, ...]], decimal_comma: bool) -> bool:
    """Whether some column has a text first and only numbers below."""
    for cell, column in zip(first, columns, strict=True):
        if not cell or is_missing(cell, words=True) or as_number(cell, decimal_comma=decimal_comma) is not None:
            continue
        below = [text for text in column if not is_missing(text, words=True)]
        if below and all(as_number(text, decimal_comma=decimal_comma) is not None for text in below):
            return True
    return False
