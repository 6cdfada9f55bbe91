"""A user's CSV file as a data set, and later rows of the same kind for a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import torch
from torch import Tensor

from bayesify.data.dataset import DataSet, assemble
from bayesify.data.delimited import Rows
from bayesify.data.errors import DataError, unknown_name
from bayesify.data.formats import read_rows
from bayesify.data.preparation import Column, Preparation
from bayesify.data.targets import read_targets, sorted_naturally

if TYPE_CHECKING:
    from collections.abc import Sequence


def from_csv(
    path: str | Path | TextIO,
    target: str | int = -1,
    *,
    kind: str | None = None,
    test: float = 0.2,
    seed: int = 0,
    header: bool | None = None,
    separator: str | None = None,
    ignore: Sequence[str | int] = (),
    categorical: Sequence[str | int] = (),
) -> DataSet:
    """A table with one example per row. The target is a column by name or number (the last unless given).

    Columns of text become categories, and so do those named in `categorical`; `ignore` leaves columns out. A
    seeded share `test` of the rows, every class in proportion, is kept for testing.
    """
    rows = read_rows(path, separator=separator, header=header)
    if len(rows.names) < 2:
        raise DataError(f"{rows.what}: one column only; an input and a target need two (is the separator right?)")
    aim = _position(rows, target, "target")
    forced = {_position(rows, which, "categorical column") for which in categorical}
    left_out = {_position(rows, which, "column to ignore") for which in ignore} | {aim}
    used = [position for position in range(len(rows.names)) if position not in left_out]
    if not used:
        raise DataError(f"{rows.what}: no column is left for the inputs")
    every = range(len(rows.cells))
    numbers = [rows.number(row, aim) for row in every]
    what = f"{rows.what}, column {rows.names[aim]!r}"
    texts = [rows.cells[row][aim] for row in every]
    targets = read_targets(texts, numbers, kind, lambda row: rows.where(row, aim), what)
    columns = tuple(_column(rows, position, forced=position in forced) for position in used)
    if len(rows.cells) < 4:
        raise DataError(f"{rows.what}: {len(rows.cells)} rows of data; at least 4 are needed to train and test")
    return assemble(
        Path(rows.what).stem,
        targets.kind,
        _encode(rows, used, columns),
        targets.y,
        test=test,
        seed=seed,
        class_names=targets.class_names,
        columns=columns,
        target_name=rows.names[aim],
        source=rows.what,
    )


def rows_from_csv(
    path: str | Path | TextIO,
    preparation: Preparation,
    *,
    target: str | None = None,
    header: bool | None = None,
) -> Tensor:
    """Raw rows `[n, columns]` for a trained network, from a file or an open stream; give them to
    `preparation.apply`.

    With a header, columns are found by name and others are left out; without one, there must be exactly the inputs in
    their order (and `target`, where given: the column of that name, `column 1, ...`, else the last).
    """
    columns = preparation.columns
    if preparation.image is not None or not columns:
        raise DataError("this data is images, not a table: give pictures or an array instead of CSV")
    rows = read_rows(path, header=header, expected=[column.name for column in columns])
    if rows.header:
        missing = [column.name for column in columns if column.name not in rows.names]
        if missing:
            raise DataError(f"{rows.what}: no column {missing[0]!r}; the header has {', '.join(rows.names)}")
        used = [rows.names.index(column.name) for column in columns]
    elif len(rows.names) == len(columns) + (target is not None):
        aim = None if target is None else rows.names.index(target) if target in rows.names else len(columns)
        used = [position for position in range(len(rows.names)) if position != aim]
    else:
        names = ", ".join(column.name for column in columns)
        raise DataError(
            f"{rows.what}: {len(rows.names)} columns and no header with the names in training: "
            f"give that header, or exactly {len(columns)} columns: {names}"
        )
    return _encode(rows, used, columns)


def _position(rows: Rows, which: str | int, what: str) -> int:
    if isinstance(which, str) and which in rows.names:
        return rows.names.index(which)
    if isinstance(which, str):
        try:
            which = int(which)
        except ValueError:
            raise unknown_name(f"{what} of {rows.what}:", which, rows.names) from None
    if not -len(rows.names) <= which < len(rows.names):
        raise DataError(f"{rows.what}: {what} {which} is not among the {len(rows.names)} columns (from 0)")
    return which % len(rows.names)


def _column(rows: Rows, position: int, *, forced: bool) -> Column:
    numbers = [rows.number(row, position) for row in range(len(rows.cells))]
    texts = [row for row, number in enumerate(numbers) if number is None]
    if not forced and len(texts) < len(numbers) / 2:
        if texts:
            cell = rows.cells[texts[0]][position]
            raise DataError(f"{rows.where(texts[0], position)}: expected a number, got {cell!r}")
        return Column(rows.names[position])
    categories = sorted_naturally({row[position] for row in rows.cells})
    if len(categories) > max(20, len(numbers) / 2):
        advice = f"leave it out (ignore=[{rows.names[position]!r}], --ignore {rows.names[position]})"
        place = f"{rows.what}, column {rows.names[position]!r}"
        raise DataError(f"{place}: {len(categories)} different texts in {len(numbers)} rows say nothing; {advice}")
    return Column(rows.names[position], tuple(categories))


def _encode(rows: Rows, used: Sequence[int], columns: Sequence[Column]) -> Tensor:
    encoded = torch.empty(len(rows.cells), len(columns), dtype=torch.float64)
    for place, (position, column) in enumerate(zip(used, columns, strict=True)):
        code = {category: number for number, category in enumerate(column.categories)}
        values = []
        for row, cells in enumerate(rows.cells):
            value = rows.number(row, position)
            if column.categories:
                value = code.get(cells[position])
                if value is None:
                    known = ", ".join(column.categories[:10])
                    raise DataError(
                        f"{rows.where(row, position)}: unknown category {cells[position]!r}; known: {known}"
                    )
            elif value is None:
                raise DataError(f"{rows.where(row, position)}: expected a number, got {cells[position]!r}")
            values.append(float(value))
        encoded[:, place] = torch.tensor(values, dtype=torch.float64)
    return encoded
