"""Readers of the files that known data sets come in; each checks what it reads, and names a damaged file.

idx     magic 0 0 8 d, d big-endian uint32 sizes, then uint8 values; plain or gzipped CIFAR   10000 records of
one label byte and 3072 bytes (planes R, G, B of 32x32); plain, xz, or all in a tar.gz UCI     a table of
numbers apart by white space, and row numbers of the splits in splits.npz or index_*.txt
"""

from __future__ import annotations

import gzip
import lzma
import math
import os
import re
import struct
import tarfile
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesify.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Bytes = NDArray[np.uint8]
CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR_RECORDS = 10000
_CIFAR_RECORD = 3073
_DAMAGE = (
    EOFError, KeyError, NotImplementedError, OSError, ValueError,
    lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .xz (whose own checksums are verified)."""
    with _naming(path):
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes())
        return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def read_idx(path: Path, dimensions: int) -> Bytes:
    """The array in an idx file of uint8 values."""
    content = read_bytes(path)
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(f"{path}: not an idx file of {dimensions}-dimensional uint8 data; get a fresh copy")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        size = "x".join(map(str, shape))
        raise DataError(f"{path}: holds {len(content) - start} values where its header promises {size}; truncated?")
    return np.frombuffer(bytearray(content), np.uint8)[start:].reshape(shape)


def read_images(images: Path, labels: Path, classes: int) -> tuple[Bytes, Bytes]:
    """Images and labels from two idx files that belong together."""
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise DataError(
            f"{images} holds {len(x)} images but {labels.name} {len(y)} labels; they do not belong together"
        )
    check_labels(y, classes, labels)
    return x, y


def read_cifar(paths: Sequence[Path]) -> Bytes:
    """The records `[60000, 3073]` of the six batches, from one archive or from six files, unpacked side by
    side.
    """
    if len(paths) == 1:
        batches = _batches_in_archive(paths[0])
    else:
        with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool:
            batches = list(pool.map(read_bytes, paths))
    names = paths if len(paths) > 1 else [paths[0] / f"{batch}.bin" for batch in CIFAR_BATCHES]
    for batch, path in zip(batches, names, strict=True):
        if len(batch) != _CIFAR_RECORD * CIFAR_RECORDS:
            raise DataError(f"{path}: a batch has {_CIFAR_RECORD * CIFAR_RECORDS} bytes, this one {len(batch)}")
        check_labels(np.frombuffer(batch, np.uint8)[::_CIFAR_RECORD], 10, path)
    return np.frombuffer(bytearray().join(batches), np.uint8).reshape(-1, _CIFAR_RECORD)


def read_letters(path: Path, columns: int, rows: int) -> NDArray[np.str_]:
    """A table of single letters apart by commas, `[rows, columns]`."""
    with _naming(path):
        lines = read_bytes(path).decode("ascii").split()
    for number, line in enumerate(lines, 1):
        if line.count(",") != columns - 1 or len(line) != 2 * columns - 1:
            raise DataError(f"{path}, line {number}: expected {columns} letters apart by commas, got {line[:60]!r}")
    if len(lines) != rows:
        raise DataError(f"{path}: expected {rows} rows, got {len(lines)}; truncated?")
    return np.array([line.split(",") for line in lines])


def read_table(path: Path) -> NDArray[np.float64]:
    """A table of numbers apart by white space, `[rows, columns]`, every line as long as the first."""
    with _naming(path):
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
        raise DataError(f"{path}: expected numbers apart by white space ({error})") from error
    if not np.isfinite(table).all():
        raise DataError(f"{path}: holds values that are not finite, the first in row {_first_bad(table)}")
    return table


def read_splits(folder: Path, rows: int) -> tuple[dict[str, NDArray[np.int64]], int]:
    """Row numbers `train_k`, `test_k` (perhaps `index_features`, `index_target`), and how many splits."""
    path = folder / "splits.npz"
    if path.is_file():
        found = {name: np.atleast_1d(rows).astype(np.int64) for name, rows in read_npz(path).items()}
    else:
        found = {}
        for path in folder.glob("index_*.txt"):
            with _naming(path):
                numbers = read_bytes(path).decode("ascii").split()
                found[path.stem.removeprefix("index_") if re.search(r"\d", path.stem) else path.stem] = np.array(
                    [int(float(number)) for number in numbers], dtype=np.int64
                )
    count = sum(name.startswith("train_") for name in found)
    for k in range(count):
        parts = [found.get(f"train_{k}"), found.get(f"test_{k}")]
        joined = np.concatenate([part for part in parts if part is not None])
        if len(joined) != rows or not np.array_equal(np.sort(joined), np.arange(rows)):
            raise DataError(f"{folder}: split {k} does not share out the {rows} rows of the table exactly once")
    if count == 0:
        raise DataError(f"{folder}: holds no splits (train_0, test_0, ...)")
    return found, count


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive; Python objects in it are never loaded."""
    # NumPy leaves a file that it opens itself open when it is no archive.
    with _naming(path), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise DataError(f"{path}: holds a single array, expected an .npz archive of named ones")
        with archive:
            return {name: archive[name] for name in archive.files}


def check_labels(labels: Bytes, classes: int, path: Path) -> None:
    """Refuse labels beyond the classes there are."""
    if len(labels) and int(labels.max()) >= classes:
        raise DataError(f"{path}: holds the label {labels.max()}, expected 0 to {classes - 1}; get a fresh copy")


def _batches_in_archive(path: Path) -> list[bytes]:
    with _naming(path), tarfile.open(path, "r:gz") as archive:
        found: dict[str, bytes] = {}
        # Going through the archive once, in its own order: seeking back in a gzip means unpacking it again.
        for member in archive:
            name = Path(member.name).stem
            if name in CIFAR_BATCHES and member.isfile():
                stream = archive.extractfile(member)
                found[name] = b"" if stream is None else stream.read()
    if missing := [name for name in CIFAR_BATCHES if name not in found]:
        raise DataError(f"{path}: the archive holds no {missing[0]}.bin; get a fresh copy")
    return [found[name] for name in CIFAR_BATCHES]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn whatever damage makes a reader raise into one line that names the file."""
    try:
        yield
    except DataError:
        raise
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        if "allow_pickle" in str(error):
            message = "holds Python objects, which are never loaded, or is no .npz file"
            raise DataError(f"{path}: {message}") from error
        raise DataError(f"{path}: truncated or damaged ({error}); get a fresh copy") from error


def _first_bad(table: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(~np.isfinite(table).all(1))[0])
