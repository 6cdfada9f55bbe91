"""Compressed files, read with a limit on what they expand to: a small file must not fill the memory.

The limit is 2 GiB for each file. `BAYESIFY_MAX_EXPANDED` sets another number of bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from bayesify.data.errors import DataError

VARIABLE = "BAYESIFY_MAX_EXPANDED"
DEFAULT = 2 << 30
_PIECE = 1 << 20


def most_bytes() -> int:
    """The largest number of bytes that a compressed file may expand to.

    Raises:
        DataError: the environment variable is no whole number above 0.

    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise DataError(f"{VARIABLE} must be a whole number of bytes above 0, got {text!r}")
    return int(text)


def check_expanded(path: Path, size: int) -> None:
    """Raise a `DataError` if a file would expand to more than the limit."""
    if size > most_bytes():
        raise DataError(
            f"{path}: expands to more than {most_bytes() / 2**30:.3g} GiB; if you trust the file, set {VARIABLE} to a "
            "larger number of bytes"
        )


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        ...


def read_expanded(path: Path, stream: Readable) -> bytes:
    """Everything in a stream that decompresses `path`; an error as soon as it is more than the limit."""
    pieces, size = [], 0
    while piece := stream.read(_PIECE):
        size += len(piece)
        check_expanded(path, size)
        pieces.append(piece)
    return b"".join(pieces)
