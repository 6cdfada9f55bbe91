"""Open data by the name of a known data set, or by the path of a file or of a folder of images."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.data.arrays import from_npz
from bayesify.data.catalogue import canonical
from bayesify.data.databases import is_query
from bayesify.data.errors import DataError, unknown_name
from bayesify.data.folders import from_folder
from bayesify.data.formats import ARRAY_FILES, TABLE_FILES, suffix_of, suffixes
from bayesify.data.loading import load
from bayesify.data.tables import from_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from bayesify.data.dataset import DataSet

READERS: dict[str, Callable[..., DataSet]] = {
    **dict.fromkeys(TABLE_FILES, from_table),
    **dict.fromkeys(ARRAY_FILES, from_npz),
}


def open_data(name_or_path: str | Path, **options: Any) -> DataSet:
    """Open a data set by its name, or from a file or a folder of images.

    A table is read by `from_table`, arrays by `from_npz`, a folder by `from_folder` and a name by `load`.

    Args:
        name_or_path: the name of a known data set, a file with a known suffix (.csv, .tsv and .txt, also with .gz;
            .parquet, .arrow, .feather, .npz), a folder, or `sqlite:///FILE?query=SELECT ...`.
        options: options of the function that reads it; None counts as not given.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the name or an option is unknown, or the data is missing or damaged.

    Examples:
        >>> bf.data.open_data("moons", n=200, test=50).x_train.shape
        torch.Size([150, 2])

    """
    options = {name: value for name, value in options.items() if value is not None}
    text = str(name_or_path)
    path = Path(text).expanduser()
    if is_query(text):
        return _call(from_table, text, options)
    suffix = suffix_of(path)
    if path.is_dir() and (isinstance(name_or_path, Path) or not is_known(text)):
        return _call(from_folder, path, options)
    if suffix in READERS:
        if not path.exists():
            raise DataError(f"{path}: there is no such file")
        return _call(READERS[suffix], path, options)
    if path.is_file() and not is_known(text):
        kind = f"a {suffix} file" if suffix else "a file without a suffix"
        raise DataError(f"{path}: cannot read {kind}; expected {suffixes()} or a folder of images")
    return load(text, **options)


def is_known(name: str) -> bool:
    """Whether this is the name of a known data set; a path such as `./mnist` is not."""
    if name.startswith((".", "/", "~")) or is_query(name):
        return False
    try:
        canonical(name)
    except DataError:
        return False
    return True


def _call(reader: Callable[..., DataSet], path: Path | str, options: dict[str, Any]) -> DataSet:
    accepted = [name for name in inspect.signature(reader).parameters if name not in {"path", "source"}]
    for name in options:
        if name not in accepted:
            raise unknown_name(f"option for {path}:", name, accepted)
    return reader(path, **options)
