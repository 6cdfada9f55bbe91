"""The readers of tables in Parquet and Arrow files, by pyarrow (the extra `tables`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.frames import rows_of_frame
from bayesify.data.rows import Rows


def read_parquet(path: Path) -> Rows:
    """All rows of a Parquet file."""
    arrow = _pyarrow(path, "parquet")
    with explain_damage(path):
        # One file: a folder of parts is not followed.
        table = arrow.ParquetFile(path).read()
    return rows_of_frame(table, str(path))


def read_arrow(path: Path) -> Rows:
    """All rows of an Arrow file (also called Feather, version 2), or of an Arrow stream."""
    arrow = _pyarrow(path, "ipc")
    with explain_damage(path):
        content = path.read_bytes()
        reader = arrow.open_file if content[:6] == b"ARROW1" else arrow.open_stream
        table = reader(content).read_all()
    return rows_of_frame(table, str(path))


def _pyarrow(path: Path, module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise DataError(
            f"{path}: {path.suffix} files need pyarrow: pip install 'bayesify[tables]', or save the table as CSV"
        ) from None
