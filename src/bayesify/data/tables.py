"""A data set from a table, and further rows of the same table for prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import torch
from torch import Tensor

from bayesify.data.dataset import DataSet, assemble
from bayesify.data.errors import DataError, unknown_name
from bayesify.data.formats import read_rows
from bayesify.data.preparation import Column, Preparation
from bayesify.data.rows import Rows
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
    r"""A data set from a table with one example per row, such as a CSV file.

    Columns of text become categories.

    Args:
        path: a file in one of the formats of `bayesify.data.formats.TABLE_FILES`, or an open text stream of CSV.
        target: the column of the target, by name or number.
        kind: "classification" or "regression"; by default found from the target.
        test: share (a float) or number (an int) of test examples, every class in proportion.
        seed: the seed of the split.
        header: whether the first row has the names of the columns; by default found automatically.
        separator: the character between cells; by default found automatically.
        ignore: columns to leave out, by name or number.
        categorical: columns of numbers to use as categories, by name or number.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the file cannot be read, a column is unknown, or a cell is missing or not a number.

    Example:
        >>> import pathlib
        >>> rows = "".join(f"{number},{number % 2},{'ab'[number % 2]}\n" for number in range(10))
        >>> _ = pathlib.Path("mine.csv").write_text("size,flag,kind\n" + rows)
        >>> dataset = bf.data.from_csv("mine.csv", target="kind", test=4)
        >>> dataset.class_names, dataset.x_train.shape
        (('a', 'b'), torch.Size([6, 2]))

    """
    rows = read_rows(path, separator=separator, header=header)
    if len(rows.names) < 2:
        raise DataError(
            f"{rows.what}: expected at least two columns, an input and a target, got one; is the separator right?"
        )
    target_position = _position(rows, target, "target")
    forced = {_position(rows, which, "categorical column") for which in categorical}
    left_out = {_position(rows, which, "column to ignore") for which in ignore} | {target_position}
    inputs = [position for position in range(len(rows.names)) if position not in left_out]
    if not inputs:
        raise DataError(f"{rows.what}: no column is left for the inputs")
    every = range(len(rows.cells))
    numbers = [rows.number(row, target_position) for row in every]
    what = f"{rows.what}, column {rows.names[target_position]!r}"
    texts = [rows.cells[row][target_position] for row in every]
    targets = read_targets(texts, numbers, kind, lambda row: rows.where(row, target_position), what)
    columns = tuple(_column(rows, position, forced=position in forced) for position in inputs)
    if len(rows.cells) < 4:
        raise DataError(f"{rows.what}: {len(rows.cells)} rows; training and testing need at least 4")
    return assemble(
        Path(rows.what).stem,
        targets.kind,
        _encode(rows, inputs, columns),
        targets.y,
        test=test,
        seed=seed,
        class_names=targets.class_names,
        columns=columns,
        target_name=rows.names[target_position],
        source=rows.what,
    )


def rows_from_csv(
    path: str | Path | TextIO,
    preparation: Preparation,
    *,
    target: str | None = None,
    header: bool | None = None,
) -> Tensor:
    r"""Raw rows for a trained network, from a table.

    With a header, columns are found by name and others are ignored. Without a header, the columns must be those of the
    training inputs in the same order.

    Args:
        path: a file in one of the formats of `bayesify.data.formats.TABLE_FILES`, or an open text stream of CSV.
        preparation: the preparation of the training data; give it the result: `preparation.apply(rows)`.
        target: the name of the target, if a table without a header has it too: the column of that name (`column 1`,
            ...), else the last.
        header: whether the first row has the names of the columns; by default found automatically.

    Returns:
        Raw rows, `[n, columns]` float64.

    Raises:
        DataError: the file cannot be read, a column is missing, or a category is unknown.

    Example:
        >>> import io
        >>> preparation = bf.data.load("moons").prepare().preparation
        >>> rows = bf.data.rows_from_csv(io.StringIO("x2,x1\n0.5,1\n0.25,2\n"), preparation)
        >>> rows
        tensor([[1.0000, 0.5000],
                [2.0000, 0.2500]], dtype=torch.float64)

    """
    columns = preparation.columns
    if preparation.image is not None or not columns:
        raise DataError("this data is images, not a table: give images or an array instead of a table")
    rows = read_rows(path, header=header, expected=[column.name for column in columns])
    if rows.header:
        missing = [column.name for column in columns if column.name not in rows.names]
        if missing:
            raise DataError(f"{rows.what}: no column {missing[0]!r}; the header has {', '.join(rows.names)}")
        inputs = [rows.names.index(column.name) for column in columns]
    elif len(rows.names) == len(columns) + (target is not None):
        target_position = None if target is None else rows.names.index(target) if target in rows.names else len(columns)
        inputs = [position for position in range(len(rows.names)) if position != target_position]
    else:
        names = ", ".join(column.name for column in columns)
        raise DataError(
            f"{rows.what}: expected a header with the training columns, or exactly {len(columns)} columns: "
            f"{names}; got {len(rows.names)} columns"
        )
    return _encode(rows, inputs, columns)


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
        raise DataError(f"{place}: too many categories, {len(categories)} in {len(numbers)} rows; {advice}")
    return Column(rows.names[position], tuple(categories))


def _encode(rows: Rows, inputs: Sequence[int], columns: Sequence[Column]) -> Tensor:
    encoded = torch.empty(len(rows.cells), len(columns), dtype=torch.float64)
    for place, (position, column) in enumerate(zip(inputs, columns, strict=True)):
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
