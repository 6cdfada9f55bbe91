"""Errors of data: one line that says what was given, what was expected and what to do."""

from __future__ import annotations

import csv
import lzma
import struct
import tarfile
import tokenize
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bayesify.errors import first_line, nearest
from bayesify.files import check_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What parsers raise for damaged files. RuntimeError stands for NotImplementedError and RecursionError too.
DAMAGE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError, TypeError,
    ValueError, csv.Error, lzma.LZMAError, struct.error, tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile,
    zlib.error, tokenize.TokenError,
)  # fmt: skip


class DataError(ValueError):
    """Data that is missing, damaged, or not what was expected."""


def unknown_name(what: str, given: object, known: Iterable[str], hint: str = "") -> DataError:
    """The error for an unknown name, with the nearest known one."""
    return DataError(f"unknown {what} {given!r}{nearest(str(given), known)}{hint}")


def check_one_of(what: str, given: object, allowed: Iterable[object]) -> None:
    """Raise an error for a setting that is not one of a few allowed values."""
    choices = list(allowed)
    if given not in choices:
        raise DataError(f"{what} must be one of {', '.join(map(repr, choices))}, got {given!r}")


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn the exceptions of reading a missing or damaged file into a `DataError` that names the file.

    Args:
        path: the file that is read inside the `with` block.

    Yields:
        Nothing.

    """
    try:
        check_regular(path)
        yield
    except DataError:
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        if "allow_pickle" in str(error):
            message = "holds Python objects, which are never loaded, or is no .npz file"
            raise DataError(f"{path}: {message}") from error
        raise DataError(f"{path}: truncated or damaged ({first_line(error)}); get a fresh copy") from error
