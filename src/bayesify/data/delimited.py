"""The reader of tables in delimited text, such as CSV: every error names the line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.rows import Rows, as_number

if TYPE_CHECKING:
    from collections.abc import Collection


def read_delimited(
    source: str | Path | TextIO,
    *,
    separator: str | None = None,
    header: bool | None = None,
    expected: Collection[str] = (),
) -> Rows:
    """All rows of a CSV or TSV file, or of an open text stream.

    Separator and header are found automatically unless given. With `expected` names, the first row is a header if it
    has one of them.
    """
    what, text = _text(source)
    if not text.strip():
        raise DataError(f"{what}: the file is empty")
    if isinstance(source, str | Path) and Path(source).suffix.lower() == ".tsv":
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
    if b"\0" in content:
        raise DataError(f"{path}: not a text file in UTF-8 (it has zero bytes); save it as CSV in UTF-8")
    try:
        return str(path), content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from error


def _separator(text: str) -> str:
    first = [line for line in text.splitlines()[:50] if line.strip()][:20]
    for separator in ("\t", ";", ","):
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

    In a table of texts only, its cells must differ, and none may appear again in its column.
    """
    first, rest = rows[0], rows[1:]
    if any(cell and as_number(cell, decimal_comma=decimal_comma) is not None for cell in first):
        return False
    if any(as_number(cell, decimal_comma=decimal_comma) is not None for row in rest for cell in row):
        return True
    seen = [set(column) for column in zip(*rest, strict=True)]
    if not rest:
        return True
    return len(set(first)) == len(first) and not any(a in b for a, b in zip(first, seen, strict=True))
