"""A data set from a table, and further rows of the same table for prediction."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.data.column_kinds import find_columns, same_but_for_capitals, share_of_inputs
from bayesify.data.databases import database_of, is_query, rows_of_query
from bayesify.data.dataset import DataSet, assemble
from bayesify.data.dates import date_format, read_date
from bayesify.data.encoding import EncodedRows, encode
from bayesify.data.errors import DataError, check_one_of, unknown_name
from bayesify.data.formats import read_rows
from bayesify.data.frames import is_frame
from bayesify.data.rows import Rows, as_number, is_missing
from bayesify.data.targets import Targets, read_targets
from bayesify.errors import BayesifyWarning, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.data.columns import Column
    from bayesify.data.preparation import Preparation

MISSING_POLICIES = ("impute", "refuse")
# Copies of rows are told from this share on, in tables with a column of numbers that has this many different values:
# rows of categories may well agree. More rows than this are not compared.
_MANY_COPIES, _MANY_VALUES, _COMPARED = 0.1, 20, 20_000
Which = str | int


def from_table(
    source: Any,
    target: Which = -1,
    *,
    kind: str | None = None,
    test: float | str | Path | None = 0.2,
    seed: int = 0,
    header: bool | None = None,
    separator: str | None = None,
    ignore: Sequence[Which] = (),
    categorical: Sequence[Which] = (),
    numeric: Sequence[Which] = (),
    missing: str = "impute",
    group_by: Which | None = None,
    order_by: Which | None = None,
    columns: Sequence[Column] | None = None,
) -> DataSet:
    r"""A data set from a table with one example per row: a file, a frame in memory, or the result of a query.

    Text becomes categories, and dates become numbers with their cycles. Text with more than 64 different values is
    hashed. Ids are left out. Missing values are filled in, and an input says where they were. Each such decision is a
    sentence in `notices` and a `BayesifyWarning`.

    Args:
        source: a file in one of the formats of `bayesify.data.formats.TABLE_FILES`, an open text stream of CSV, a
            pandas or polars frame, an Arrow table, a list of dictionaries, or `sqlite:///FILE?query=SELECT ...`.
        target: the column of the target, by name or number. Rows without a target are left out.
        kind: "classification" or "regression"; by default found from the target.
        test: share (a float) or number (an int) of test examples; None trains on all rows; a path is a table of test
            examples with the same columns.
        seed: the seed of the split.
        header: whether the first row has the names of the columns; by default found automatically.
        separator: the character between cells; by default found automatically.
        ignore: columns to leave out, by name or number.
        categorical: columns to use as categories whatever their cells look like, by name or number.
        numeric: columns to use as numbers, and to keep even where they look like ids, by name or number.
        missing: "impute", or "refuse": a missing value is an error.
        group_by: a column whose equal values stay in one part of the split; it is no input.
        order_by: a column of numbers or dates; the last rows by it are for testing.
        columns: the columns of an earlier data set, where the same are wanted again.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the table cannot be read, a column is unknown, or a cell does not fit its column.

    Examples:
        >>> people = [{"age": 20 + n, "born": f"19{90 - n}-05-01", "member": n % 2 == 0} for n in range(10)]
        >>> dataset = bf.data.from_table(people, target="member", test=4)
        >>> [column.kind for column in dataset.columns], dataset.class_names
        (['number', 'date'], ('False', 'True'))

    """
    rows = _with_target(read_rows(source, separator=separator, header=header), target, missing)
    own_test = isinstance(test, str | Path)
    table = _Table(rows, target, ignore, group_by, order_by)
    targets = _targets(rows, table.target, kind)
    if columns is None:
        positions, columns, findings = find_columns(
            rows,
            table.inputs,
            categorical={table.position(which, "categorical column") for which in categorical},
            numeric={table.position(which, "numeric column") for which in numeric},
            refuse_missing=missing == "refuse",
        )
        notices = [*findings.notices(), *filter(None, [share_of_inputs(columns)])]
    else:
        positions, notices = [rows.names.index(column.name) for column in _present(rows, columns)], []
    if not positions:
        raise DataError("; ".join([f"{rows.what}: no column is left for the inputs", *notices]))
    dropped = rows.dropped
    if dropped:
        notices.insert(0, f"rows without a target are left out: {dropped:,}")
    if twins := same_but_for_capitals(targets.class_names):
        notices.append(f"the target has the classes {twins[0]!r} and {twins[1]!r}: write them alike if they are one")
    if len(rows.cells) < 4:
        raise DataError(f"{rows.what}: {counted(len(rows.cells), 'row')}; training and testing need at least 4")
    x, y = encode(rows, positions, columns).raw, targets.y
    if group_by is None and (copies := _repeated(columns, x, y)):
        notices.append(copies)
    parts: float | tuple[Tensor, Tensor] | None = None if own_test else test  # type: ignore[assignment]
    if own_test:
        later = _test_examples(test, rows, table, columns, targets, header)
        parts = (torch.arange(len(x)), torch.arange(len(x), len(x) + len(later.y)))
        x, y = torch.cat((x, later.rows.raw)), torch.cat((y, later.y))
        notices += later.notices
    dataset = assemble(
        _name(source, rows),
        targets.kind,
        x,
        y,
        test=parts,
        seed=seed,
        class_names=targets.class_names,
        columns=tuple(columns),
        target_name=rows.names[table.target],
        source=rows.what,
        notices=tuple(notices),
        groups=None if own_test else table.groups(),
        order=None if own_test else table.order(),
    )
    for notice in notices:
        warnings.warn(notice, BayesifyWarning, stacklevel=2)
    return dataset


# The name from when CSV was the only format.
def from_csv(
    path: Any,
    target: Which = -1,
    *,
    kind: str | None = None,
    test: float | str | Path | None = 0.2,
    seed: int = 0,
    header: bool | None = None,
    separator: str | None = None,
    ignore: Sequence[Which] = (),
    categorical: Sequence[Which] = (),
    **settings: Any,
) -> DataSet:
    r"""A data set from a table with one example per row, such as a CSV file: `from_table` under its older name.

    Args:
        path: a file, an open text stream of CSV, a frame or a query, as in `from_table`.
        target: the column of the target, by name or number.
        kind: "classification" or "regression"; by default found from the target.
        test: share (a float) or number (an int) of test examples, every class in proportion; None or a path as in
            `from_table`.
        seed: the seed of the split.
        header: whether the first row has the names of the columns; by default found automatically.
        separator: the character between cells; by default found automatically.
        ignore: columns to leave out, by name or number.
        categorical: columns of numbers to use as categories, by name or number.
        settings: `numeric`, `missing`, `group_by`, `order_by` and `columns` of `from_table`.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the file cannot be read, a column is unknown, or a cell does not fit its column.

    Examples:
        >>> import pathlib
        >>> rows = "".join(f"{number},{number % 2},{'ab'[number % 2]}\n" for number in range(10))
        >>> _ = pathlib.Path("mine.csv").write_text("size,flag,kind\n" + rows)
        >>> dataset = bf.data.from_csv("mine.csv", target="kind", test=4)
        >>> dataset.class_names, dataset.x_train.shape
        (('a', 'b'), torch.Size([6, 2]))

    """
    return from_table(
        path,
        target,
        kind=kind,
        test=test,
        seed=seed,
        header=header,
        separator=separator,
        ignore=ignore,
        categorical=categorical,
        **settings,
    )


def from_sql(connection: Any, query: str, target: Which = -1, **settings: Any) -> DataSet:
    """A data set from the result of a query, through an open connection to a database.

    Args:
        connection: a connection of Python's DB-API: sqlite3, psycopg, mysqlclient, ...
        query: a SELECT, one example per row.
        target: the column of the target, by name or number.
        settings: those of `from_table`.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the query fails, or its result is no data set.

    Examples:
        >>> import sqlite3
        >>> connection = sqlite3.connect(":memory:")
        >>> _ = connection.execute("CREATE TABLE sales (size REAL, sold TEXT)")
        >>> _ = connection.executemany("INSERT INTO sales VALUES (?, ?)", [(n / 2, "ny"[n % 2]) for n in range(10)])
        >>> bf.data.from_sql(connection, "SELECT size, sold FROM sales", "sold", test=4).x_train.shape
        torch.Size([6, 1])

    """
    rows = rows_of_query(connection, query)
    listed = [dict(zip(rows.names, cells, strict=True)) for cells in rows.cells]
    return from_table(listed, target, **settings)


def encode_rows(
    source: Any, preparation: Preparation, *, target: str | None = None, header: bool | None = None
) -> EncodedRows:
    r"""Raw rows for a trained network from a table, each with the reason why it cannot be predicted, if there is one.

    Args:
        source: a table, as in `from_table`.
        preparation: the preparation of the training data.
        target: the name of the target, if a table without a header has it too: the column of that name (`column 1`,
            ...), else the last.
        header: whether the first row has the names of the columns; by default found automatically.

    Returns:
        Raw rows and reasons: a category, a spelling or a gap that training never saw.

    Raises:
        DataError: the table cannot be read, or a column is missing.

    Examples:
        >>> import io
        >>> preparation = bf.data.load("moons").prepare().preparation
        >>> bf.data.encode_rows(io.StringIO("x1,x2\n1,2\n1,\n"), preparation).reasons
        [None, "column 'x2': missing value, which training never had"]

    """
    rows, inputs = _training_columns(source, preparation, target, header)
    return encode(rows, inputs, preparation.columns, strict=False)


def rows_from_csv(
    path: Any,
    preparation: Preparation,
    *,
    target: str | None = None,
    header: bool | None = None,
) -> Tensor:
    r"""Raw rows for a trained network, from a table; a cell that training never saw is an error.

    With a header, columns are found by name and others are ignored. Without a header, the columns must be those of the
    training inputs in the same order. `encode_rows` gives such cells a reason instead.

    Args:
        path: a table, as in `from_table`.
        preparation: the preparation of the training data; give it the result: `preparation.apply(rows)`.
        target: the name of the target, if a table without a header has it too: the column of that name (`column 1`,
            ...), else the last.
        header: whether the first row has the names of the columns; by default found automatically.

    Returns:
        Raw rows, `[n, columns]` float64.

    Raises:
        DataError: the file cannot be read, a column is missing, or a category is unknown.

    Examples:
        >>> import io
        >>> preparation = bf.data.load("moons").prepare().preparation
        >>> rows = bf.data.rows_from_csv(io.StringIO("x2,x1\n0.5,1\n0.25,2\n"), preparation)
        >>> rows
        tensor([[1.0000, 0.5000],
                [2.0000, 0.2500]], dtype=torch.float64)

    """
    rows, inputs = _training_columns(path, preparation, target, header)
    return encode(rows, inputs, preparation.columns).raw


@dataclass(frozen=True)
class Labelled:
    """Rows with their targets, and notices about those that were left out."""

    rows: EncodedRows
    y: Tensor
    notices: tuple[str, ...] = ()


def labelled_rows(
    source: Any,
    columns: Sequence[Column],
    target: Which,
    class_names: Sequence[str] = (),
    *,
    header: bool | None = None,
    other_classes: Sequence[str] = (),
) -> Labelled:
    """Rows of another table for testing, with targets as in training.

    Rows without a target, and rows with a cell that training never saw, are left out, and a notice says how many.

    Args:
        source: a table, as in `from_table`.
        columns: the columns of training.
        target: its column, by name or number.
        class_names: the classes of training; none for a regression.
        header: whether the first row has the names of the columns; by default found automatically.
        other_classes: further classes that may occur, numbered after those of training.

    Returns:
        Rows, targets and notices.

    Raises:
        DataError: a column is missing, a class was not in training, or no row is left.

    """
    expected = [column.name for column in columns]
    rows = _with_target(read_rows(source, header=header, expected=expected), target, "impute")
    position = _position(rows, target, "target")
    if not rows.header and len(rows.names) == len(columns) + 1:
        inputs = [place for place in range(len(rows.names)) if place != position]
        _check_no_header(rows, inputs, columns, header)
    else:
        inputs = [rows.names.index(column.name) for column in _present(rows, columns)]
    encoded = encode(rows, inputs, columns, strict=False)
    names = (*class_names, *other_classes)
    y = _labels(rows, position, names) if class_names else _numbers(rows, position)
    good = torch.tensor([reason is None for reason in encoded.reasons], dtype=torch.bool)
    if not bool(good.any()):
        raise DataError(f"{rows.what}: no row can be predicted; the first: {encoded.reasons[0]}")
    notices = []
    if rows.dropped:
        have = "row has no target and is" if rows.dropped == 1 else "rows have no target and are"
        notices.append(f"{rows.what}: {rows.dropped:,} {have} left out")
    wrong = len(good) - int(good.sum())
    if wrong:
        first = next(row for row, reason in enumerate(encoded.reasons) if reason is not None)
        notices.append(
            f"{rows.what}: {wrong:,} of {len(good):,} rows have what training never saw and are not scored; the first, "
            f"{rows.unit} {rows.lines[first]}: {encoded.reasons[first]}"
        )
    return Labelled(EncodedRows(encoded.raw[good], [None] * int(good.sum())), y[good], tuple(notices))


class _Table:
    """The columns of a table by what they are for."""

    def __init__(
        self, rows: Rows, target: Which, ignore: Sequence[Which], group_by: Which | None, order_by: Which | None
    ) -> None:
        if group_by is not None and order_by is not None:
            raise DataError("group_by and order_by exclude each other: choose one")
        self.rows = rows
        self.target = self.position(target, "target")
        self._group = None if group_by is None else self.position(group_by, "column to group by")
        self._order = None if order_by is None else self.position(order_by, "column to order by")
        left_out = {self.position(which, "column to ignore") for which in ignore} | {self.target, self._group}
        self.inputs = [place for place in range(len(rows.names)) if place not in left_out]
        if not self.inputs:
            raise DataError(f"{rows.what}: no column is left for the inputs")

    def position(self, which: Which, what: str) -> int:
        """The position of a column."""
        return _position(self.rows, which, what)

    def groups(self) -> Tensor | None:
        """The number of each row's group."""
        if self._group is None:
            return None
        numbers: dict[str, int] = {}
        return torch.tensor([numbers.setdefault(cells[self._group], len(numbers)) for cells in self.rows.cells])

    def order(self) -> Tensor | None:
        """The place of each row in time."""
        if self._order is None:
            return None
        cells = [cells[self._order] for cells in self.rows.cells]
        for row, cell in enumerate(cells):
            if is_missing(cell, words=True):
                raise DataError(f"{self.rows.where(row, self._order)}: rows cannot be ordered by a missing value")
        numbers = [as_number(cell, decimal_comma=self.rows.decimal_comma) for cell in cells]
        if None in numbers:
            how = date_format(cells)
            if how is None:
                name = self.rows.names[self._order]
                raise DataError(
                    f"{self.rows.what}, column {name!r}: rows are ordered by numbers or dates, got {cells[0]!r}"
                )
            numbers = [read_date(cell, how) for cell in cells]
        return torch.tensor(numbers, dtype=torch.float64)


def _test_examples(
    test: Any, rows: Rows, table: _Table, columns: Sequence[Column], targets: Targets, header: bool | None
) -> Labelled:
    if isinstance(test, str) and not is_query(test):
        test = Path(test).expanduser()
    if isinstance(test, Path) and not test.is_file():
        raise DataError(f"{test}: there is no such file of test examples")
    target: Which = rows.names[table.target] if rows.header else table.target
    return labelled_rows(test, columns, target, targets.class_names, header=header)


def _with_target(rows: Rows, target: Which, missing: str) -> Rows:
    """The rows that have a target."""
    check_one_of("missing", missing, MISSING_POLICIES)
    if len(rows.names) < 2:
        raise DataError(
            f"{rows.what}: expected at least two columns, an input and a target, got one; is the separator right?"
        )
    position = _position(rows, target, "target")
    gaps = [row for row, cells in enumerate(rows.cells) if is_missing(cells[position])]
    if gaps and missing == "refuse":
        cell = rows.cells[gaps[0]][position]
        given = f" ({cell!r})" if cell else ""
        raise DataError(f"{rows.where(gaps[0], position)}: missing value{given}; fill it in or remove the row")
    return rows.without(gaps)


def _targets(rows: Rows, position: int, kind: str | None) -> Targets:
    what = f"{rows.what}, column {rows.names[position]!r}"
    if not rows.cells:
        raise DataError(f"{what}: no row has a target")
    numbers = [rows.number(row, position) for row in range(len(rows.cells))]
    texts = [cells[position] for cells in rows.cells]
    return read_targets(texts, numbers, kind, lambda row: rows.where(row, position), what)


def _labels(rows: Rows, position: int, names: Sequence[str]) -> Tensor:
    known = {name: number for number, name in enumerate(names)}
    labels = []
    for row, cells in enumerate(rows.cells):
        cell = cells[position]
        number = as_number(cell, decimal_comma=rows.decimal_comma)
        # Classes that are whole numbers are written without a point.
        name = str(int(number)) if cell not in known and number is not None and number.is_integer() else cell
        if name not in known:
            known_names = ", ".join(names[:10])
            raise DataError(f"{rows.where(row, position)}: a class {cell!r} that was not in training: {known_names}")
        labels.append(known[name])
    return torch.tensor(labels)


def _numbers(rows: Rows, position: int) -> Tensor:
    values = []
    for row in range(len(rows.cells)):
        number = rows.number(row, position)
        if number is None:
            cell = rows.cells[row][position]
            raise DataError(f"{rows.where(row, position)}: the target of a regression must be a number, got {cell!r}")
        values.append(number)
    return torch.tensor(values, dtype=torch.float64)


def _training_columns(
    source: Any, preparation: Preparation, target: str | None, header: bool | None
) -> tuple[Rows, list[int]]:
    """The rows of a table, and the positions of the training columns in it."""
    columns = preparation.columns
    if preparation.image is not None or not columns:
        raise DataError("this data is images, not a table: give images or an array instead of a table")
    rows = read_rows(source, header=header, expected=[column.name for column in columns])
    if rows.header:
        return rows, [rows.names.index(column.name) for column in _present(rows, columns)]
    if len(rows.names) == len(columns) + (target is not None):
        place = None if target is None else rows.names.index(target) if target in rows.names else len(columns)
        inputs = [position for position in range(len(rows.names)) if position != place]
        _check_no_header(rows, inputs, columns, header)
        return rows, inputs
    names = ", ".join(column.name for column in columns)
    raise DataError(
        f"{rows.what}: expected a header with the training columns, or exactly {len(columns)} columns: "
        f"{names}; got {counted(len(rows.names), 'column')}"
    )


def _check_no_header(rows: Rows, inputs: Sequence[int], columns: Sequence[Column], header: bool | None) -> None:
    """Refuse a first row that reads like a header with other names: it would be taken for an example."""
    if header is False:
        return
    numeric = [place for place, column in zip(inputs, columns, strict=True) if column.kind == "number"]
    first = [rows.cells[0][place] for place in numeric]
    given = [cell for cell in first if not is_missing(cell, words=True)]
    if given and all(as_number(cell, decimal_comma=rows.decimal_comma) is None for cell in given):
        wanted = ", ".join(column.name for column in columns)
        raise DataError(
            f"{rows.what}: the first row, {', '.join(rows.cells[0])}, looks like a header, and has none of the "
            f"training columns: {wanted}"
        )


def _repeated(columns: Sequence[Column], x: Tensor, y: Tensor) -> str | None:
    """A notice where many rows are copies of others, in tables whose rows would not agree by chance."""
    rows = torch.cat((x.double(), y.double().reshape(len(y), -1)), 1)[:_COMPARED].nan_to_num(-math.pi)
    numbers = [place for place, column in enumerate(columns) if column.kind == "number"]
    if not any(len(rows[:, place].unique()) >= _MANY_VALUES for place in numbers):
        return None
    copies = len(rows) - len(rows.unique(dim=0))
    if copies < _MANY_COPIES * len(rows):
        return None
    which = "" if len(x) <= _COMPARED else f" of the first {_COMPARED:,}"
    return (
        f"{copies:,} rows{which} are copies of other rows: if one copy is in the training part and one in the test "
        "part, the scores are too good; leave copies out, or keep them together with --group-by"
    )


def _present(rows: Rows, columns: Sequence[Column]) -> Sequence[Column]:
    missing = [column.name for column in columns if column.name not in rows.names]
    if missing:
        raise DataError(f"{rows.what}: no column {missing[0]!r}; the header has {', '.join(rows.names)}")
    return columns


def _position(rows: Rows, which: Which, what: str) -> int:
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


def _name(source: Any, rows: Rows) -> str:
    if is_query(source):
        return database_of(source)[0].stem
    name = "table" if is_frame(source) else Path(rows.what).name.removesuffix(".gz")
    return Path(name).stem
