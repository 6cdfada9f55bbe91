"""Where data lies: `$BAYESIFY_DATA`, then the user's cache; and what of it is here, for `bayesify data`.

Both layouts are found: ours (a folder per data set, described in the data's README) and files as they are
downloaded (idx files plain or gzipped, the CIFAR archive or its folder, torchvision's `MNIST/raw`, the index
files of UCI splits).
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
    """A known data set: whether it is here, where, its size (of the files here, else of the download), and
    terms.
    """

    name: str
    here: bool
    where: str
    bytes: int
    licence: str
    how: str
    description: str


def available() -> list[Available]:
    """Every known data set and whether it is here; nothing is downloaded."""
    rows = []
    for known in KNOWN.values():
        if not known.folders:
            where, size, how = "embedded", 0, "comes with scikit-learn"
        elif found := find(known):
            where, size = str(found[0].parent), sum(path.stat().st_size for path in found)
            how = f"load({known.name!r})"
        else:
            where, size = "", sum(file.bytes for file in known.files)
            place = f"${VARIABLE}/{known.folders[0]}"
            how = f"downloaded on first use from {known.files[0].urls[0]}, or put its files in {place}"
        rows.append(Available(known.name, where != "", where, size, known.licence, how, known.description))
    return rows


def cache() -> Path:
    """The user's cache."""
    import pooch

    return Path(pooch.os_cache("bayesify"))


def find(known: KnownDataSet) -> list[Path] | None:
    """The files of a data set in the first place that has all of them, else None."""
    for root in roots():
        for folder in known.folders:
            if found := _complete(known, root / folder):
                return found
        if known.name == "cifar10" and (root / "cifar-10-binary.tar.gz").is_file():
            return [root / "cifar-10-binary.tar.gz"]
    return None


def spelled(folder: Path, name: str) -> Path | None:
    """A file of that name, packed or unpacked."""
    stem = name.removesuffix(".gz")
    return _any_of(folder, (stem + ".gz", stem, stem.replace("-idx", ".idx")))


def roots() -> Iterator[Path]:
    """The places looked in, in order; the cache is asked for (and its package needed) only where the first has not."""
    given = os.environ.get(VARIABLE)
    if given:
        yield Path(given).expanduser()
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
    # The names as downloaded; each may also lie there unpacked, or packed.
    found = [spelled(folder, file.name) for file in known.files]
    return [path for path in found if path] if all(found) else None


def _cifar(folder: Path) -> list[Path] | None:
    batches = [_any_of(folder, (f"{batch}.bin", f"{batch}.bin.xz", f"{batch}.bin.gz")) for batch in CIFAR_BATCHES]
    if all(batches):
        return [path for path in batches if path]
    archive = folder / "cifar-10-binary.tar.gz"
    return [archive] if archive.is_file() else None


def _any_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
