"""Interrupts that wait for the end of a training step, so that an update is never left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Delay interrupts (SIGINT, SIGTERM) inside this context; a second one raises at once.

    Yields:
        A function that says whether an interrupt has arrived.

    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    arrived: list[int] = []
    previous = {}

    def note(number: int, _: Any) -> None:
        if arrived:
            raise KeyboardInterrupt
        arrived.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(arrived)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
