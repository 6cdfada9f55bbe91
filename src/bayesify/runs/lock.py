"""One training at a time in a run folder: a lock file that names the process which trains.

The file `.lock` holds the number of the process, its machine and when it started. It is made when training begins and
deleted at its end. A lock whose process is gone (killed, or the machine restarted) is taken over. Reading a run never
looks at the lock.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bayesify.errors import RunError
from bayesify.files import is_running, reason

LOCK = ".lock"
_TRIES = 20
P = ParamSpec("P")
R = TypeVar("R")

# The locks of this process, by folder, with the thread that holds each. A forked child has the table, not the locks.
_held: dict[tuple[int, Path], int] = {}
_guard = threading.Lock()
_scopes = threading.local()


def holds_locks(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that trains: locks which `take` makes inside it are released at its end, even on failure."""

    @functools.wraps(function)
    def holding(*args: P.args, **kwargs: P.kwargs) -> R:
        with _scope():
            return function(*args, **kwargs)

    return holding


def take(folder: Path) -> None:
    """Lock a run folder until the end of the surrounding `holds_locks`; outside of one, only check that it is free.

    A thread that has the lock may take it again.

    Raises:
        RunError: another process or thread trains into the folder, or the lock cannot be written.

    """
    folder = folder.resolve()
    check(folder)
    scopes = getattr(_scopes, "open", [])
    key = (os.getpid(), folder)
    if not scopes:
        return
    with _guard:
        if key in _held:
            if _held[key] != threading.get_ident():
                raise RunError(_busy(folder, _identity()))
            return
        try:
            _make(folder)
        except OSError as problem:
            raise RunError(f"cannot write to {folder}: {reason(problem)}") from None
        _held[key] = threading.get_ident()
    scopes[-1].append(key)


def check(folder: Path) -> None:
    """Raise a `RunError` if another process or thread trains into this folder at the moment."""
    folder = folder.resolve()
    holder = _held.get((os.getpid(), folder))
    if holder is not None:
        if holder != threading.get_ident():
            raise RunError(_busy(folder, _identity()))
        return
    owner = _read(folder / LOCK)
    if owner is not None and _is_alive(owner):
        raise RunError(_busy(folder, owner))


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    stack: list[list[tuple[int, Path]]] = getattr(_scopes, "open", [])
    _scopes.open = stack
    stack.append([])
    try:
        yield
    finally:
        for key in stack.pop():
            with _guard:
                _held.pop(key, None)
                # A forked child leaves its parent's lock alone.
                if key[0] == os.getpid():
                    _release(key[1] / LOCK)


def _release(path: Path) -> None:
    """Delete the lock of this process; one that another process has taken over stays.

    A process in another container may not see that this one runs, and take its lock for a stale one.
    """
    mine = _identity()
    found = _read(path) or {}
    if all(found.get(name) == mine[name] for name in ("pid", "host", "started", "boot")):
        with contextlib.suppress(OSError):
            path.unlink()


def _make(folder: Path) -> None:
    """Make the lock file with its content in one step, after removing that of a process which is gone."""
    path = folder / LOCK
    unique = folder / f"{LOCK}.{os.getpid()}.{threading.get_ident()}"
    content = json.dumps(_identity())
    with _one_at_a_time(folder):
        for _ in range(_TRIES):
            try:
                unique.write_text(content, encoding="utf-8")
                _create(unique, path, content)
            except FileExistsError:
                owner = _read(path)
                if owner is not None and _is_alive(owner):
                    raise RunError(_busy(folder, owner)) from None
                _remove_stale(path, owner, unique)
            else:
                return
            finally:
                unique.unlink(missing_ok=True)
    raise RunError(f"cannot lock {folder}: delete {path} if nothing trains there")


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process of this machine at a time look at a lock and take it over.

    Without it a second process could move away the fresh lock of a first one, and a third could take the folder before
    the second puts it back. Where the system cannot lock a folder, that window stays.
    """
    descriptor = None
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            # Closing alone would leave it locked for as long as a process lives that another thread forked meanwhile.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _create(unique: Path, path: Path, content: str) -> None:
    try:
        os.link(unique, path)
    except FileExistsError:
        raise
    except OSError:
        # A disk without hard links.
        with path.open("x", encoding="utf-8") as stream:
            stream.write(content)


def _remove_stale(path: Path, owner: dict[str, Any] | None, unique: Path) -> None:
    """Move a stale lock away; put it back if another process took it over in the meantime."""
    try:
        path.replace(unique)
    except FileNotFoundError:
        return
    if _read(unique) != owner:
        with contextlib.suppress(OSError):
            os.link(unique, path)


def _identity() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": platform.node(), "started": _started(pid), "boot": _boot(), "since": time.time()}


def _read(path: Path) -> dict[str, Any] | None:
    """The owner of a lock; None where there is none. A lock that cannot be read has an unknown owner: `{}`."""
    try:
        if not path.is_file():
            return None
        owner = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether the owner of a lock may still run. On another machine that cannot be known, so it may."""
    pid, host = owner.get("pid"), owner.get("host")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid < 1:
        return False
    if host != platform.node():
        return True
    if pid == os.getpid():
        # The table of locks decides about this process: the file is of an earlier process with the same number.
        return False
    return owner.get("boot") == _boot() and is_running(pid) and owner.get("started") == _started(pid)


def _busy(folder: Path, owner: dict[str, Any]) -> str:
    host = "" if owner.get("host") == platform.node() else f" on {owner.get('host')}"
    since = owner.get("since")
    when = ""
    if isinstance(since, int | float) and 0 < since < 1e11:
        when = time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(since))
    advice = f" (if it no longer runs, delete {folder / LOCK})" if host else ""
    who = f"process {owner.get('pid')}{host}"
    return f"{folder} is in use: {who} trains there{when}; wait or choose another folder{advice}"


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did: it differs where a number is used again. Linux only."""
    try:
        # The name of the program, in brackets, may hold blanks and brackets.
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, ValueError, IndexError):
        return None


@functools.cache
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
