"""One way in for the command line: a known name, a CSV, TSV or .npz file, or a folder of pictures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.data.arrays import from_npz
from bayesify.data.catalogue import canonical
from bayesify.data.delimited import SUFFIXES as TABLES
from bayesify.data.errors import DataError, unknown_name
from bayesify.data.folders import from_folder
from bayesify.data.loading import load
from bayesify.data.tables import from_csv

if TYPE_CHECKING:
    from collections.abc import Callable

    from bayesify.data.dataset import DataSet

READERS: dict[str, Callable[..., DataSet]] = {
    **dict.fromkeys(TABLES, from_csv),
    ".npz": from_npz,
}


def open_data(name_or_path: str | Path, **options: Any) -> DataSet:
    """A data set by name or from a file or folder; options that are None count as not given."""
    given = {name: value for name, value in options.items() if value is not None}
    text = str(name_or_path)
    path = Path(text).expanduser()
    suffix = path.suffix.lower()
    if path.is_dir() and (isinstance(name_or_path, Path) or not is_known(text)):
        return _call(from_folder, path, given)
    if suffix in READERS:
        if not path.is_file():
            raise DataError(f"{path}: there is no such file")
        return _call(READERS[suffix], path, given)
    if path.is_file() and not is_known(text):
        kinds = ", ".join(READERS)
        raise DataError(f"{path}: do not know how to read a {suffix or 'nameless'} file; expected {kinds} or a folder")
    return load(text, **given)


def is_known(name: str) -> bool:
    """Whether a name is that of a data set we know; what is written as a path (`./mnist`) is not."""
    if name.startswith((".", "/", "~")):
        return False
    try:
        canonical(name)
    except DataError:
        return False
    return True


def _call(reader: Callable[..., DataSet], path: Path, options: dict[str, Any]) -> DataSet:
    taken = [name for name in inspect.signature(reader).parameters if name != "path"]
    for name in options:
        if name not in taken:
            raise unknown_name(f"option for {path}:", name, taken)
    return reader(path, **options)
