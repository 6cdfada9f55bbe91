"""Where data is: in `$BAYESIFY_DATA`, else in the user's cache; and which data sets are on this machine.

Two layouts are found: one folder per data set, and files as they are published (idx files plain or gzipped, the CIFAR
archive or its folder, torchvision's `MNIST/raw`, the index files of UCI splits).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bayesify.data.catalogue import KNOWN, KnownDataSet, KnownRegression
from bayesify.data.published_files import CIFAR_BATCHES

VARIABLE = "BAYESIFY_DATA"


@dataclass(frozen=True)
class Available:
    """A known data set, and whether it is on this machine.

    Args:
        name: name of the data set.
        here: whether it is on this machine.
        where: its folder, "embedded" if it comes with scikit-learn, or "".
        bytes: size of its files, or of the download.
        licence: its licence.
        how: how to get it.
        description: what it contains.

    Examples:
        >>> next(row for row in bf.data.available() if row.name == "digits").where
        'embedded'

    """

    name: str
    here: bool
    where: str
    bytes: int
    licence: str
    how: str
    description: str


def available() -> list[Available]:
    """List the known data sets and whether they are on this machine, without downloading.

    Returns:
        One `Available` for each data set.

    Examples:
        >>> [row.name for row in bf.data.available()][:4]
        ['digits', 'moons', 'circles', 'gap']

    """
    rows = []
    for known in KNOWN.values():
        if not known.folders:
            where, size, how = "embedded", 0, "comes with scikit-learn"
        elif paths := find(known):
            where, size = str(paths[0].parent), sum(path.stat().st_size for path in paths)
            how = f"load({known.name!r})"
        else:
            where, size = "", sum(file.bytes for file in known.files)
            place = f"${VARIABLE}/{known.folders[0]}"
            how = f"downloaded on first use from {known.files[0].urls[0]}, or put its files in {place}"
        rows.append(Available(known.name, where != "", where, size, known.licence, how, known.description))
    return rows


def cache() -> Path:
    """The folder of downloads."""
    import pooch

    return Path(pooch.os_cache("bayesify"))


def find(known: KnownDataSet) -> list[Path] | None:
    """The files of a data set in the first folder that has all of them, else None."""
    for root in roots():
        for folder in known.folders:
            if paths := _complete(known, root / folder):
                return paths
        if known.name == "cifar10" and (root / "cifar-10-binary.tar.gz").is_file():
            return [root / "cifar-10-binary.tar.gz"]
    return None


def packed_or_unpacked(folder: Path, name: str) -> Path | None:
    """The file of this name, gzipped or not, if it exists."""
    stem = name.removesuffix(".gz")
    return _any_of(folder, (stem + ".gz", stem, stem.replace("-idx", ".idx")))


def roots() -> Iterator[Path]:
    """The folders to search, in order; pooch is imported only if the first does not have the data."""
    folder = os.environ.get(VARIABLE)
    if folder:
        yield Path(folder).expanduser()
    yield cache()


def _complete(known: KnownDataSet, folder: Path) -> list[Path] | None:
    if not folder.is_dir():
        return None
    if known.name == "cifar10":
        return _cifar(folder)
    if isinstance(known, KnownRegression):
        table = _any_of(folder, ("data.txt.gz", "data.txt"))
        splits = _any_of(folder, ("splits.npz", "index_train_0.txt"))
        return [table, splits] if table and splits else None
    paths = [packed_or_unpacked(folder, file.name) for file in known.files]
    return [path for path in paths if path] if all(paths) else None


def _cifar(folder: Path) -> list[Path] | None:
    batches = [_any_of(folder, (f"{batch}.bin", f"{batch}.bin.xz", f"{batch}.bin.gz")) for batch in CIFAR_BATCHES]
    if all(batches):
        return [path for path in batches if path]
    archive = folder / "cifar-10-binary.tar.gz"
    return [archive] if archive.is_file() else None


def _any_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
