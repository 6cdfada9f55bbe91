"""Independent pieces of work, each on a core of its own.

Torch shares out every single operation, and all cores wait for each other after each. That is well for a large product
and a waste for the many small operations between products. Pieces that do not need each other run side by side instead,
each by one thread that shares nothing out. The answers are those of one piece after the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

Piece = TypeVar("Piece")
Result = TypeVar("Result")
# More than this many at once hold more memory than they save time; each then shares its operations among a few cores.
_MOST_WORKERS = 8
# Fewer pieces for each than this, and not as many for one as for the other, would leave workers idle for long.
_MANY = 4


def side_by_side(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device, *, worth: bool = True
) -> list[Result]:
    """`[work(piece) for piece in pieces]`, on a CPU several at once.

    Work is done without gradients being recorded, unless it asks for them itself.

    Args:
        work: a function that may run in several threads at the same time.
        pieces: best of one size.
        device: where the tensors are; a GPU is kept busy by one thread.
        worth: whether there is enough to do, some milliseconds for each piece.

    """
    workers = workers_for(device)
    uneven = len(pieces) % workers > 0 and len(pieces) < _MANY * workers
    if not worth or workers < 2 or uneven or _get_current_dispatch_mode() is not None:
        return [work(piece) for piece in pieces]
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def alone(piece: Piece) -> Result:
        # Both are settings of a thread.
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
            return work(piece)

    futures = [pool(workers, torch.get_num_threads() // workers).submit(alone, piece) for piece in pieces]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def workers_for(device: torch.device) -> int:
    """How many pieces run at once."""
    return min(torch.get_num_threads(), _MOST_WORKERS) if device.type == "cpu" else 1


@cache
def pool(workers: int, threads_each: int) -> ThreadPoolExecutor:
    """Threads that stay for the next time, each with its own number of threads for torch's operations."""
    mine = torch.get_num_threads()
    ready = threading.Barrier(workers + 1)

    def begin() -> None:
        torch.get_num_threads()  # a thread's first look takes the process's number over
        torch.set_num_threads(threads_each)
        ready.wait()

    made = ThreadPoolExecutor(workers, "bayesify")
    for _ in range(workers):
        made.submit(begin)
    ready.wait()
    # The number is the thread's own, but also what threads yet to come begin with.
    torch.set_num_threads(mine)
    return made


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=pool.cache_clear)
