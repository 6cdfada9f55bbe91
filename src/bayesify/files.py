"""Files that are complete or absent, and values for JSON.

Every file of a run goes through `replacing`: it is written under a temporary name, synced to disk and moved to its
path. A crash or a full disk leaves the previous file.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesify.errors import RunError

# The name of a temporary file or folder of `replacing`: the final name, the process and the thread.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.\d+")
# For systems that do not show it: the only way to ask is to set it, here to the strictest for an instant.
_UMASK_AT_IMPORT = os.umask(0o077)
os.umask(_UMASK_AT_IMPORT)


@contextlib.contextmanager
def replacing(path: Path, size: int = 0, *, alone: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to; move it to `path` when the block ends without an error.

    The file and its folder are synced, so that the new file survives a power failure after the block.

    Args:
        path: the final path; its folder is made if it is missing.
        size: number of bytes to be written, if known; too little free space is then an error before writing.
        alone: give a path in a temporary folder: for writers that make temporary files of their own beside the file.

    Yields:
        The temporary path, in the same folder or one below it.

    Raises:
        OSError: the file could not be written; `path` is unchanged.

    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_space(path.parent, size)
    own = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary = own / path.name if alone else own
    try:
        if alone:
            own.mkdir()
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        move_into_place(temporary, path)
    except BaseException:
        _remove(own)
        raise
    if alone:
        _remove(own)


def move_into_place(finished: Path, path: Path) -> None:
    """Move a finished file to `path` on the same disk, so that it survives a power failure afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sync(finished)
    finished.replace(path)
    _sync(path.parent)


def check_regular(path: Path) -> None:
    """Refuse a path that exists and is no regular file: reading a pipe or a device would wait or never end.

    Raises:
        OSError: the path is a folder, a pipe, a socket or a device.

    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise OSError(22, f"it is {kind}, not a regular file", str(path))


def remove_leftovers(*folders: Path) -> None:
    """Delete the temporary files of `replacing` in folders whose processes are gone (killed, or a power failure)."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                match = _TEMPORARY.fullmatch(path.name)
                if match and not is_running(int(match["pid"])):
                    _remove(path)


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing, or only temporary files of `replacing`, perhaps of a process elsewhere."""
    return all(_TEMPORARY.fullmatch(path.name) for path in folder.iterdir())


def delete(path: Path) -> None:
    """Delete a file, if it is there.

    Raises:
        RunError: it cannot be deleted.

    """
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise RunError(f"cannot delete {path}: {reason(problem)}") from None


def _remove(temporary: Path) -> None:
    """Delete a temporary file or folder of `replacing`, as far as that works; links and other things stay."""
    with contextlib.suppress(OSError):
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        elif temporary.is_file() and not temporary.is_symlink():
            temporary.unlink()


def is_running(pid: int) -> bool:
    """Whether a process of that number runs on this machine; one that has ended, and waits for its parent, does not."""
    if os.name != "posix":
        # On Windows, sending signal 0 would end the process.
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError, IndexError):
        # Its name, in brackets, may hold blanks and brackets; its state follows.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return True


def write_text(path: Path, text: str) -> None:
    """Write a text to `path`, completely or not at all."""
    try:
        with replacing(path, len(text)) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise RunError(f"cannot write {path}: {reason(problem)}") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write one JSON object to `path`, completely or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """A value for JSON: NaN and infinity become None, tuples become lists, other objects become text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def reason(problem: Exception) -> str:
    """Why a file could not be read or written, in one line."""
    lines = (getattr(problem, "strerror", None) or str(problem)).strip().splitlines()
    return lines[0][:200] if lines else type(problem).__name__


def _sync(path: Path) -> None:
    # Only POSIX can sync a folder; elsewhere the move is still atomic.
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) if path.is_dir() else os.O_RDONLY
    try:
        descriptor = os.open(path, flags)
    except OSError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The permissions that new files of this process do not get. It is read: setting it would affect other threads."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return _UMASK_AT_IMPORT
    found = re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE)
    return int(found[1], 8) if found else _UMASK_AT_IMPORT


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + (1 << 16):
        raise OSError(28, f"no space left on the disk ({needed / 2**20:.1f} MiB needed, {free / 2**20:.1f} MiB free)")
