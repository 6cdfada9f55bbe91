"""The readers of tables in Parquet and Arrow files, by pyarrow (the extra `tables`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.expansion import check_expanded
from bayesify.data.frames import rows_of_frame
from bayesify.data.rows import Rows

# How many times larger than its file a table of ordinary values is in memory.
_USUAL = 16


def read_parquet(path: Path) -> Rows:
    """All rows of a Parquet file."""
    arrow = _pyarrow(path, "parquet")
    with explain_damage(path):
        # One file: a folder of parts is not followed.
        file = arrow.ParquetFile(path)
        _check_size(path, file.metadata)
        return _rows(file.read(), path)


def read_arrow(path: Path) -> Rows:
    """All rows of an Arrow file (also called Feather, version 2), or of an Arrow stream."""
    arrow = _pyarrow(path, "ipc")
    with explain_damage(path):
        content = path.read_bytes()
        reader = arrow.open_file if content[:6] == b"ARROW1" else arrow.open_stream
        return _rows(reader(content).read_all(), path)


def _rows(table: Any, path: Path) -> Rows:
    # Arrow believes the offsets and the texts of a file until they are used.
    table.validate(full=True)
    return rows_of_frame(table, str(path))


def _check_size(path: Path, metadata: Any) -> None:
    """Refuse a small file that claims many rows: runs of equal values take no room in it, and all of it in memory."""
    claimed = 8 * metadata.num_rows * metadata.num_columns
    claimed = max(
        claimed, *(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)), 0
    )
    if claimed > _USUAL * path.stat().st_size:
        check_expanded(path, claimed)


def _pyarrow(path: Path, module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise DataError(
            f"{path}: {path.suffix} files need pyarrow: pip install 'bayesify[tables]', or save the table as CSV"
        ) from None
