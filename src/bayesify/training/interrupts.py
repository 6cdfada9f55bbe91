"""Interrupts that wait for the end of a training step, so that an update is never left half done.

Signals reach the main thread only. Training in another thread is stopped by a function, see `stop_when`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_stopping = threading.local()


@contextmanager
def stop_when(stopped: Callable[[], bool]) -> Iterator[None]:
    """Stop training in this thread once `stopped()` is true; it ends as after an interrupt, with KeyboardInterrupt.

    Args:
        stopped: whether to stop; asked once a step, from several threads in Hamiltonian Monte Carlo.

    Examples:
        >>> from bayesify.training.interrupts import stop_when
        >>> with stop_when(lambda: True):
        ...     try:
        ...         bf.Point(net, "categorical").fit((x, y), epochs=2, progress=False)
        ...     except KeyboardInterrupt:
        ...         print("stopped")
        stopped

    """
    before = getattr(_stopping, "stopped", None)
    _stopping.stopped = stopped
    try:
        yield
    finally:
        _stopping.stopped = before


def stop_function() -> Callable[[], bool]:
    """The function that `stop_when` has set in this thread; one that is never true where there is none.

    Returns:
        A function without arguments, for work that is cut into pieces smaller than a step.

    """
    return getattr(_stopping, "stopped", None) or (lambda: False)


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Delay interrupts (SIGINT, SIGTERM) inside this context; a second one raises at once.

    Yields:
        A function that says whether an interrupt has arrived, or what `stop_when` asks for is true.

    """
    stopped = stop_function()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
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
        yield lambda: bool(arrived) or stopped()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
