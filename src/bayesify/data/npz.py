"""Arrays from .npy files, and named arrays from .npz archives.

Headers are compared with the size of the file before memory is spent. Python objects are never loaded.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bayesify.data.errors import DataError, explain_damage
from bayesify.data.expansion import check_expanded

_MAGIC = b"\x93NUMPY"
_STORED = zipfile.ZIP_STORED


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by name; Python objects in it are never loaded."""
    return _read_archive(path, lambda names: names)


def read_array(path: Path, choose: Callable[[Sequence[str]], str]) -> NDArray[Any]:
    """The array of an .npy file, or one array of an .npz archive.

    Args:
        path: the file.
        choose: picks a name from those in an archive.

    Returns:
        The array.

    Raises:
        DataError: the file is damaged, holds Python objects, or expands to too much.

    """
    with explain_damage(path), path.open("rb") as stream:
        if stream.read(len(_MAGIC)) == _MAGIC:
            stream.seek(0)
            return _read_npy(stream, path.stat().st_size, str(path))
    (array,) = _read_archive(path, lambda names: [choose(names)]).values()
    return array


def _read_archive(path: Path, choose: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, NDArray[Any]]:
    with explain_damage(path), path.open("rb") as stream:
        start = stream.read(len(_MAGIC))
        if start == _MAGIC:
            raise DataError(f"{path}: holds a single array, expected an .npz archive of named arrays")
        if not start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            kind = "holds Python objects, which are never loaded, or is no .npz file" if start else "the file is empty"
            raise DataError(f"{path}: {kind}")
        with zipfile.ZipFile(stream) as archive:
            members = {
                member.filename.removesuffix(".npy"): member
                for member in archive.infolist()
                if member.filename.endswith(".npy")
            }
            names = choose(list(members))
            # A member is never read beyond the size that the archive states for it.
            check_expanded(path, sum(members[name].file_size for name in names if _is_packed(members[name])))
            arrays = {}
            for name in names:
                with archive.open(members[name]) as content:
                    arrays[name] = _read_npy(content, members[name].file_size, f"{path}: {name}")
                    if content.read(1):
                        raise DataError(f"{path}: {name} has bytes after its array; get a fresh copy")
            return arrays


def _is_packed(member: zipfile.ZipInfo) -> bool:
    return member.compress_type != _STORED or member.file_size > member.compress_size


def _read_npy(stream: IO[bytes], size: int, what: str) -> NDArray[Any]:
    """An array in the .npy format, from a stream of `size` bytes; `what` names it in errors."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise DataError(f"{what}: not an array in the .npy format, or Python objects, which are never loaded")
    version = tuple(stream.read(2))
    readers: dict[tuple[int, ...], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"{what}: cannot read version {version} of the .npy format; save it with a common NumPy")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise DataError(f"{what}: holds Python objects, which are never loaded")
    count = math.prod(shape)
    # A pipe of the archive cannot tell its position: the header is at most what is left beside the data.
    if any(length < 0 for length in shape) or count * dtype.itemsize > size:
        raise DataError(
            f"{what}: damaged; its header states {count * dtype.itemsize:,} bytes of data (shape {list(shape)}, "
            f"{dtype}), but there are fewer than {size:,}"
        )
    content = stream.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise DataError(f"{what}: truncated; expected {count * dtype.itemsize:,} bytes of data, got {len(content):,}")
    array = np.frombuffer(bytearray(content), dtype=dtype) if content else np.empty(count, dtype)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)
