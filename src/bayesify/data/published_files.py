"""Readers of the files that known data sets are published in; each checks what it reads and names a damaged file.

idx     magic 0 0 8 d, d big-endian uint32 sizes, then uint8 values; plain or gzipped
CIFAR   10000 records of one label byte and 3072 bytes (planes R, G, B of 32x32); plain, xz, or all in a tar.gz
UCI     a table of numbers separated by white space, and row numbers of the splits in splits.npz or index_*.txt
"""

from __future__ import annotations

import gzip
import lzma
import math
import os
import re
import struct
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.expansion import check_expanded, read_expanded
from bayesify.data.npz import read_npz

if TYPE_CHECKING:
    from collections.abc import Sequence

Bytes = NDArray[np.uint8]
CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR_RECORDS = 10000
_CIFAR_RECORD = 3073


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .xz (which verifies their checksums)."""
    with explain_damage(path):
        if path.suffix == ".gz":
            with gzip.open(path) as unpacked:
                return read_expanded(path, unpacked)
        if path.suffix == ".xz":
            with lzma.open(path) as unpacked:
                return read_expanded(path, unpacked)
        return path.read_bytes()


def read_idx(path: Path, dimensions: int) -> Bytes:
    """The array in an idx file of uint8 values."""
    content = read_bytes(path)
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path}: not an idx file of {dimensions}-dimensional uint8 data; get a fresh copy")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        size = "x".join(map(str, shape))
        raise DataError(f"{path}: expected {size} values by its header, got {len(content) - start}: is it truncated?")
    return np.frombuffer(bytearray(content), np.uint8)[start:].reshape(shape)


def read_images(images: Path, labels: Path, classes: int) -> tuple[Bytes, Bytes]:
    """Images and labels from two idx files that belong together."""
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise DataError(
            f"{images} has {len(x)} images but {labels.name} has {len(y)} labels; they do not belong together"
        )
    check_labels(y, classes, labels)
    return x, y


def read_cifar(paths: Sequence[Path]) -> Bytes:
    """The records of the six batches, `[60000, 3073]`, from one archive or from six files."""
    if len(paths) == 1:
        batches = _batches_in_archive(paths[0])
    else:
        with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
            batches = list(pool.map(read_bytes, paths))
    names = paths if len(paths) > 1 else [paths[0] / f"{batch}.bin" for batch in CIFAR_BATCHES]
    for batch, path in zip(batches, names, strict=True):
        if len(batch) != _CIFAR_RECORD * CIFAR_RECORDS:
            raise DataError(f"{path}: expected a batch of {_CIFAR_RECORD * CIFAR_RECORDS} bytes, got {len(batch)}")
        check_labels(np.frombuffer(batch, np.uint8)[::_CIFAR_RECORD], 10, path)
    return np.frombuffer(bytearray().join(batches), np.uint8).reshape(-1, _CIFAR_RECORD)


def read_letters(path: Path, columns: int, rows: int) -> NDArray[np.str_]:
    """A table of single letters separated by commas, `[rows, columns]`."""
    with explain_damage(path):
        lines = read_bytes(path).decode("ascii").split()
    for number, line in enumerate(lines, 1):
        if line.count(",") != columns - 1 or len(line) != 2 * columns - 1:
            raise DataError(f"{path}, line {number}: expected {columns} letters separated by commas, got {line[:60]!r}")
    if len(lines) != rows:
        raise DataError(f"{path}: expected {rows} rows, got {len(lines)}: is it truncated?")
    return np.array([line.split(",") for line in lines])


def read_table(path: Path) -> NDArray[np.float64]:
    """A table of numbers separated by white space, `[rows, columns]`."""
    with explain_damage(path):
        lines = [line.split() for line in read_bytes(path).decode("ascii").splitlines()]
    rows = [(number, cells) for number, cells in enumerate(lines, 1) if cells]
    if not rows:
        raise DataError(f"{path}: the file is empty")
    for number, cells in rows:
        if len(cells) != len(rows[0][1]):
            raise DataError(f"{path}, line {number}: expected {len(rows[0][1])} numbers, got {len(cells)}")
    try:
        table = np.array([cells for _, cells in rows], dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{path}: expected numbers separated by white space ({error})") from error
    if not np.isfinite(table).all():
        raise DataError(f"{path}: has values that are not finite, the first in row {_first_bad(table)}")
    return table


def read_splits(folder: Path, rows: int) -> tuple[dict[str, NDArray[np.int64]], int]:
    """Row numbers `train_k`, `test_k` (perhaps `index_features`, `index_target`), and the number of splits."""
    path = folder / "splits.npz"
    if path.is_file():
        with explain_damage(path):
            splits = {name: np.atleast_1d(rows).astype(np.int64) for name, rows in read_npz(path).items()}
    else:
        splits = {}
        for path in folder.glob("index_*.txt"):
            with explain_damage(path):
                numbers = read_bytes(path).decode("ascii").split()
                splits[path.stem.removeprefix("index_") if re.search(r"\d", path.stem) else path.stem] = np.array(
                    [int(float(number)) for number in numbers], dtype=np.int64
                )
    count = sum(name.startswith("train_") for name in splits)
    for k in range(count):
        parts = [splits.get(f"train_{k}"), splits.get(f"test_{k}")]
        joined = np.concatenate([part for part in parts if part is not None])
        if len(joined) != rows or not np.array_equal(np.sort(joined), np.arange(rows)):
            raise DataError(f"{folder}: split {k} must use each of the {rows} rows of the table exactly once")
    if count == 0:
        raise DataError(f"{folder}: has no splits (train_0, test_0, ...)")
    return splits, count


def check_labels(labels: Bytes, classes: int, path: Path) -> None:
    """Raise an error for labels that are not classes."""
    if len(labels) and int(labels.max()) >= classes:
        raise DataError(f"{path}: has the label {labels.max()}, expected 0 to {classes - 1}; get a fresh copy")


def _batches_in_archive(path: Path) -> list[bytes]:
    with explain_damage(path), tarfile.open(path, "r:gz") as archive:
        batches: dict[str, bytes] = {}
        size = 0
        # In the order of the archive: seeking back in a gzip unpacks it again.
        for member in archive:
            size += member.size
            check_expanded(path, size)
            name = Path(member.name).stem
            if name in CIFAR_BATCHES and member.isfile():
                stream = archive.extractfile(member)
                batches[name] = b"" if stream is None else stream.read()
    if missing := [name for name in CIFAR_BATCHES if name not in batches]:
        raise DataError(f"{path}: the archive has no {missing[0]}.bin; get a fresh copy")
    return [batches[name] for name in CIFAR_BATCHES]


def _first_bad(table: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(~np.isfinite(table).all(1))[0])
