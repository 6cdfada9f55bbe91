"""The formats of users' data files: one table of readers by file suffix.

Everything else reads these tables: `open_data`, `from_csv`, `from_npz`, the inputs of `predict`, and the error messages
that list the known suffixes. `docs/adding-a-data-format.md` shows how to add a format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TextIO

from numpy.typing import NDArray

from bayesify.data.delimited import read_delimited
from bayesify.data.errors import DataError
from bayesify.data.npz import read_npz
from bayesify.data.rows import Rows

# A table: one example per row, `reader(path) -> Rows`. Only `read_delimited` takes further options.
TABLE_FILES: dict[str, Callable[..., Rows]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".txt": read_delimited,
}
# Named arrays: x and y, or x_train, y_train, x_test and y_test, `reader(path) -> {name: array}`.
ARRAY_FILES: dict[str, Callable[[Path], dict[str, NDArray[Any]]]] = {
    ".npz": read_npz,
}


def suffixes() -> str:
    """The known suffixes, as a text for error messages."""
    return ", ".join((*TABLE_FILES, *ARRAY_FILES))


def read_rows(
    source: str | Path | TextIO,
    *,
    separator: str | None = None,
    header: bool | None = None,
    expected: Collection[str] = (),
) -> Rows:
    """The rows of a table.

    Args:
        source: a file of any format in `TABLE_FILES`, or an open stream of delimited text. A file with another suffix
            is read as delimited text.
        separator: the separator of delimited text; found automatically by default.
        header: whether delimited text has a header; found automatically by default.
        expected: names of which a header must have at least one, where they are known.

    Returns:
        The cells with the names of the columns.

    Raises:
        DataError: the file cannot be read, or an option is given that its format does not have.

    """
    suffix = Path(source).suffix.lower() if isinstance(source, str | Path) else ""
    reader = TABLE_FILES.get(suffix, read_delimited)
    if reader is read_delimited:
        return read_delimited(source, separator=separator, header=header, expected=expected)
    if separator is not None or header is not None:
        raise DataError(f"{source}: separator and header are for delimited text, not for {suffix} files")
    return reader(Path(str(source)))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; a file with an unknown suffix is read as .npz."""
    return ARRAY_FILES.get(path.suffix.lower(), read_npz)(path)
