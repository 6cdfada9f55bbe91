"""The formats of users' data files: one table of readers by file suffix.

Everything else reads these tables: `open_data`, `from_csv`, `from_npz`, the inputs of `predict`, and the error messages
that list the known suffixes. `docs/adding-a-data-format.md` shows how to add a format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bayesify.data.arrow_files import read_arrow, read_parquet
from bayesify.data.databases import is_query, read_query
from bayesify.data.delimited import read_delimited
from bayesify.data.errors import DataError
from bayesify.data.frames import is_frame, rows_of_frame
from bayesify.data.npz import read_npz
from bayesify.data.rows import Rows

# A table: one example per row, `reader(path) -> Rows`. Only `read_delimited` takes further options.
TABLE_FILES: dict[str, Callable[..., Rows]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".txt": read_delimited,
    ".csv.gz": read_delimited,
    ".tsv.gz": read_delimited,
    ".txt.gz": read_delimited,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
}
# Named arrays: x and y, or x_train, y_train, x_test and y_test, `reader(path) -> {name: array}`.
ARRAY_FILES: dict[str, Callable[[Path], dict[str, NDArray[Any]]]] = {
    ".npz": read_npz,
}


def suffixes() -> str:
    """The known suffixes, as a text for error messages."""
    return ", ".join((*TABLE_FILES, *ARRAY_FILES))


def suffix_of(path: str | Path) -> str:
    """The suffix that decides the format of a file, in lower case: `.csv`, and `.csv.gz` where it is gzipped."""
    name = Path(path).name.lower()
    ending = Path(name).suffix
    return f"{Path(name.removesuffix(ending)).suffix}{ending}" if ending == ".gz" else ending


def is_table(source: Any) -> bool:
    """Whether a source is a table: a file with a suffix of `TABLE_FILES`, the address of a query, or a frame."""
    if isinstance(source, str | Path):
        return is_query(source) or suffix_of(source) in TABLE_FILES
    return is_frame(source)


def read_rows(
    source: Any,
    *,
    separator: str | None = None,
    header: bool | None = None,
    expected: Collection[str] = (),
) -> Rows:
    """The rows of a table.

    Args:
        source: a file of any format in `TABLE_FILES`, an open stream of delimited text, the address of a query
            (`sqlite:///FILE?query=SELECT ...`), a pandas or polars frame, an Arrow table or a list of dictionaries. A
            file with another suffix is read as delimited text.
        separator: the separator of delimited text; found automatically by default.
        header: whether delimited text has a header; found automatically by default.
        expected: names of which a header must have at least one, where they are known.

    Returns:
        The cells with the names of the columns.

    Raises:
        DataError: the file cannot be read, or an option is given that its format does not have.

    """
    typed = is_query(source) or is_frame(source)
    if typed and (separator is not None or header is not None):
        raise DataError("separator and header are for delimited text, not for a frame or a query")
    if typed:
        return read_query(source) if is_query(source) else rows_of_frame(source)
    suffix = suffix_of(source) if isinstance(source, str | Path) else ""
    reader = TABLE_FILES.get(suffix, read_delimited)
    if reader is read_delimited:
        return read_delimited(source, separator=separator, header=header, expected=expected)
    if separator is not None or header is not None:
        raise DataError(f"{source}: separator and header are for delimited text, not for {suffix} files")
    return reader(Path(str(source)))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; a file with an unknown suffix is read as .npz."""
    return ARRAY_FILES.get(suffix_of(path), read_npz)(path)
