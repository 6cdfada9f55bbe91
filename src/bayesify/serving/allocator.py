"""The allocator of the C library, set for a process that answers for months.

glibc gives threads arenas of their own, up to eight for each core, and an arena keeps the most that its threads ever
took. Threads of a server come and go, so its memory would rise for hours, until every arena has met the largest
request. With two arenas it stops rising after a few of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform

ARENAS = 2
_M_ARENA_MAX = -8


def limit_arenas() -> bool:
    """Let threads that start from now on share two arenas; whether that was done.

    It is left alone where `MALLOC_ARENA_MAX` or `GLIBC_TUNABLES` say what the user wants, and without glibc.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "GLIBC_TUNABLES" in os.environ or platform.libc_ver()[0] != "glibc":
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    return False
