"""Turns: long work on a network is done one piece at a time, few may wait for it, and who has left does not.

A route of the studio runs in a thread, which nothing can stop from outside. Without turns, requests whose clients have
left would pile up in threads, and each would do its work for nobody.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from fastapi import HTTPException

from bayesify.serving.bodies import client_has_left

# Evaluations that may wait, over all runs.
MOST_WAITING = 8
_PAUSE = 0.05


class Turns:
    """The pieces of long work of one server, those in progress and those that wait."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._state = threading.Lock()
        self._waiting = 0
        self._running = 0

    @contextlib.contextmanager
    def take(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock for a piece of work.

        Args:
            lock: of what is worked on.

        Raises:
            HTTPException: too many wait already, the client has left, or the server ends.

        """
        if not lock.acquire(blocking=False):
            self._wait(lock)
        self._count(running=1)
        try:
            yield
        finally:
            lock.release()
            self._count(running=-1)

    def close(self) -> None:
        """Let nothing begin that has not begun: the server shuts down."""
        self._closed.set()

    def finish(self, seconds: float = 20.0) -> None:
        """Wait for what has begun: a thread inside torch would break off the end of the process.

        Args:
            seconds: the longest time.

        """
        until = time.monotonic() + seconds
        while self._running and time.monotonic() < until:
            time.sleep(_PAUSE)

    def _wait(self, lock: threading.Lock) -> None:
        with self._state:
            if self._waiting >= MOST_WAITING:
                message = f"{self._waiting} evaluations wait already: try again in a moment"
                raise HTTPException(429, message, headers={"Retry-After": "2"})
            self._waiting += 1
        try:
            while not lock.acquire(timeout=_PAUSE):
                if self._closed.is_set() or client_has_left():
                    raise HTTPException(503, "the server is shutting down: ask again when it is back")
        finally:
            with self._state:
                self._waiting -= 1

    def _count(self, running: int) -> None:
        with self._state:
            self._running += running
