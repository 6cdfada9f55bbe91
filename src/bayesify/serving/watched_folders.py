"""Run folders that are looked at from time to time: which runs there are, and whether one was written again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bayesify import runs
from bayesify.errors import positive

_FILES = (runs.CONFIG, runs.MODEL, runs.GUARANTEES, runs.UNKNOWN)
# A run: its folder, and for each file that is served when it was written and its size.
_Seen = frozenset[tuple[str, tuple[tuple[int, int] | None, ...]]]


class Watched:
    """Folders of runs whose changes are noticed once they are over.

    A run counts when its files are there, so one that is still being copied or trained is not noticed yet. A change is
    told when two looks in a row find the same: files that are written one after the other are one change.

    Args:
        find: the run folders that there are now.
        seconds: between two looks.

    """

    def __init__(self, find: Callable[[], Sequence[Path]], seconds: float) -> None:
        self.seconds = positive("watch", seconds)
        self._find = find
        self._served = self._last = self._look()

    def changed(self) -> bool:
        """Look once; whether something else than before is there to be served."""
        now, before = self._look(), self._last
        self._last = now
        if now != before or now == self._served:
            return False
        self._served = now
        return True

    def _look(self) -> _Seen:
        try:
            folders = self._find()
        except (OSError, ValueError):
            return frozenset()
        seen = ((str(folder), tuple(_written(folder / name) for name in _FILES)) for folder in folders)
        return frozenset((folder, files) for folder, files in seen if files[0] and files[1])


def _written(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
