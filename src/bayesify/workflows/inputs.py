"""The inputs of `predict` (images, arrays, tables or standard input) as raw examples in the layout of a run."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesify.data import DataError, EncodedRows, Preparation, encode_rows
from bayesify.data.columns import Column
from bayesify.data.databases import is_query
from bayesify.data.encoding import CellReader
from bayesify.data.formats import ARRAY_FILES, TABLE_FILES, is_table, read_arrays, read_rows, suffix_of
from bayesify.data.frames import cell_text
from bayesify.data.images import IMAGE_FILES
from bayesify.data.npz import read_array
from bayesify.workflows.python_runs import Unprepared, raw_shape

# A lone array has no targets: it serves as inputs, not as a data set.
ARRAYS = (".npy", *ARRAY_FILES)


@dataclass(frozen=True)
class Inputs:
    """Raw examples `[n, ...]`, a name for each (its file, with the row where a file holds several), and reasons.

    A reason says why an example cannot be predicted; it is None where it can.
    """

    raw: Tensor
    names: list[str]
    reasons: list[str | None]

    def prepared(self, preparation: Preparation) -> Tensor:
        """The inputs of a network; zeros where an example cannot be predicted."""
        return prepare_predictable(EncodedRows(self.raw, self.reasons), preparation)


def prepare_predictable(rows: EncodedRows, preparation: Preparation) -> Tensor:
    """The inputs of a network from raw rows; zeros where a row cannot be predicted."""
    if all(reason is None for reason in rows.reasons):
        return preparation.apply(rows.raw)
    refused = torch.tensor([reason is not None for reason in rows.reasons], dtype=torch.bool)
    inputs = torch.zeros(len(rows.raw), *preparation.shape)
    inputs[~refused] = preparation.apply(rows.raw[~refused])
    return inputs


def read_inputs(sources: Sequence[str], preparation: Preparation, stdin: TextIO) -> Inputs:
    """Every example of every source, in order."""
    tensors, names, reasons = [], [], []
    for source in expand(sources):
        read = _read(source, preparation, stdin)
        rows = read if isinstance(read, EncodedRows) else EncodedRows(read, [None] * len(read))
        several = len(rows.raw) > 1 or Path(source).suffix.lower() not in IMAGE_FILES
        name = "input" if source == "-" else "query" if is_query(source) else source
        tensors.append(rows.raw.to(torch.float64))
        reasons += rows.reasons
        names += [f"{name}:{row}" for row in range(1, len(rows.raw) + 1)] if several else [name]
    return Inputs(torch.cat(tensors), names, reasons)


def expand(sources: Iterable[str]) -> list[str]:
    """The sources, with each folder replaced by the images in it."""
    files: list[str] = []
    for source in sources:
        path = Path(source)
        if source != "-" and path.is_dir():
            images = sorted(str(file) for file in path.iterdir() if file.suffix.lower() in IMAGE_FILES)
            if not images:
                raise DataError(f"{path}: expected PNG or JPEG images in the folder, found none")
            files += images
        else:
            files.append(source)
    return files


def _read(source: str, preparation: Preparation, stdin: TextIO) -> Tensor | EncodedRows:
    if source == "-":
        return _from_stream(stdin, preparation)
    if is_query(source):
        return _from_table(source, preparation)
    path = Path(source).expanduser()
    suffix = suffix_of(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    if suffix in IMAGE_FILES:
        return preparation.prepare_image(path)[None]
    if suffix in ARRAYS:
        return fit_array(_array(path), preparation, str(path))
    if is_table(path):
        return _from_table(path, preparation)
    kinds = ", ".join((*IMAGE_FILES, *ARRAYS, *TABLE_FILES))
    kind = f"a {suffix} file" if suffix else "a file without a suffix"
    raise DataError(f"{path}: cannot read {kind}; expected {kinds}")


def _from_stream(stream: TextIO, preparation: Preparation) -> Tensor | EncodedRows:
    try:
        text = stream.read()
    except UnicodeDecodeError:
        raise DataError("standard input is not UTF-8 text: give images and arrays as files") from None
    if not text.strip():
        raise DataError("standard input is empty: expected CSV rows or one JSON value per line")
    if text.lstrip()[0] in "[{":
        return _from_json_lines(text, preparation)
    named = io.StringIO(text)
    named.name = "standard input"
    return _from_table(named, preparation)


def _from_table(source: str | Path | TextIO, preparation: Preparation) -> Tensor | EncodedRows:
    if preparation.image is None and not isinstance(preparation, Unprepared):
        return encode_rows(source, preparation)
    rows = read_rows(source)
    values = [[rows.number(row, column) for column in range(len(rows.names))] for row in range(len(rows.cells))]
    for row, cells in enumerate(values):
        if None in cells:
            column = cells.index(None)
            raise DataError(f"{rows.where(row, column)}: expected a number, got {rows.cells[row][column]!r}")
    return fit_array(np.array(values, dtype=np.float64), preparation, rows.what)


def _from_json_lines(text: str, preparation: Preparation) -> EncodedRows:
    examples: list[Tensor] = []
    reasons: list[str | None] = []
    readers = cell_readers(preparation.columns)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"standard input, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{where}: not a JSON value") from None
        if isinstance(value, dict):
            if not readers:
                raise DataError(
                    f"{where}: this run has no columns by name: give a list of numbers instead of an object"
                )
            cells, reason = read_row(value, readers, where)
            examples.append(torch.tensor([cells], dtype=torch.float64))
            reasons.append(reason)
            continue
        try:
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"{where}: expected a list of numbers") from None
        example = fit_array(array, preparation, where)
        if len(example) != 1:
            raise DataError(f"{where}: expected one example per line, got {len(example)}")
        examples.append(example)
        reasons.append(None)
    return EncodedRows(torch.cat(examples), reasons)


def cell_readers(columns: Sequence[Column]) -> list[CellReader]:
    """The readers of a row's cells, in the order of the columns."""
    return [CellReader(column) for column in columns]


def read_row(row: dict[str, Any], readers: Sequence[CellReader], where: str) -> tuple[list[float], str | None]:
    """The raw values of a row by name, and the reason why it cannot be predicted.

    Args:
        row: a value for each column; None is a missing value.
        readers: one for each column.
        where: names the row in errors.

    Returns:
        Raw values, and a reason or None.

    Raises:
        DataError: a column is absent, or a value is a list or an object.

    """
    values, first = [], None
    for reader in readers:
        name = reader.column.name
        if name not in row:
            raise DataError(f"{where}: there is no {name!r}, only {', '.join(map(str, row))}")
        try:
            if isinstance(row[name], int):
                float(row[name])
            cell = cell_text(row[name])
        except TypeError as problem:
            raise DataError(f"{where}: {name!r}: {problem}") from None
        except OverflowError:
            raise DataError(f"{where}: {name!r} is a number too large for a 64-bit float") from None
        value, reason = reader.read(cell)
        values.append(value)
        first = first or (reason and f"column {name!r}: {reason}")
    return values, first


def _array(path: Path) -> NDArray[Any]:
    if path.suffix.lower() not in {".npy", ".npz"}:
        arrays = read_arrays(path)
        return arrays[_name_of_inputs(path, list(arrays))]
    return read_array(path, lambda names: _name_of_inputs(path, names))


def _name_of_inputs(path: Path, names: Sequence[str]) -> str:
    by_lower_case = {name.lower(): name for name in names}
    for name in ("x", "x_test"):
        if name in by_lower_case:
            return by_lower_case[name]
    if len(names) == 1:
        return names[0]
    raise DataError(f"{path}: expected an array x, found {', '.join(names) or 'nothing'}")


def fit_array(array: NDArray[Any], preparation: Preparation, what: str) -> Tensor:
    """An array of one example or many as `[n, *raw_shape]`; flat pixels are folded, channels may come last.

    Args:
        array: the raw examples.
        preparation: of the run.
        what: names the array in errors.

    Returns:
        The examples in double precision.

    Raises:
        DataError: the array holds no finite numbers, or does not have the shape of the training data.

    """
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what}: must hold numbers, got {array.dtype}")
    if array.size == 0:
        raise DataError(f"{what}: holds no numbers, its shape is {list(array.shape)}")
    gaps = preparation.image is None and any(column.gaps for column in preparation.columns)
    if np.isinf(array).any() if gaps else not np.isfinite(array).all():
        raise DataError(f"{what}: holds NaN or infinity, expected finite numbers")
    layout = preparation.image
    if layout is not None and not (array.min() >= 0 and array.max() <= layout.maximum):
        span = f"{array.min():g} to {array.max():g}"
        raise DataError(f"{what}: pixels must be 0 to {layout.maximum:g} as in training, got {span}")
    wanted = raw_shape(preparation)
    size = math.prod(wanted)
    shape = (*array.shape, 1) if size == 1 and array.ndim == 1 else array.shape
    if layout is not None and layout.channels > 1 and shape[-3:] == (*wanted[1:], wanted[0]):
        array = np.moveaxis(array, -1, -3)
        shape = array.shape
    single = (wanted, (size,), (1, *wanted), (*wanted, 1))
    many = tuple((*shape[:1], *example) for example in single)
    if shape not in single and shape not in many:
        expected = ", ".join(map(str, wanted))
        raise DataError(f"{what}: examples must be [{expected}] or [n, {expected}], got {list(shape)}")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64)).reshape(-1, *wanted)
