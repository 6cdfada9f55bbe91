"""Independent pieces of work side by side on the cores of a CPU.

Torch splits each operation over all cores, which wait for each other after it. That suits a large matrix product, but
wastes time on the many small operations between products. Independent pieces run in one thread each instead. The
results are the same as from one piece after the other.
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
# More workers would need more memory than they save time; with more cores, each worker uses several.
_MOST_WORKERS = 8
# With fewer pieces per worker than this, an uneven division would leave workers idle for long.
_PIECES_PER_WORKER = 4


def side_by_side(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], device: torch.device, *, worth: bool = True
) -> list[Result]:
    """Compute `[work(piece) for piece in pieces]`, several pieces at once on a CPU.

    Gradients are not recorded, unless `work` turns them on.

    Args:
        work: a function that may run in several threads at the same time.
        pieces: its arguments, best of equal size.
        device: where the tensors are; one thread is enough for a GPU.
        worth: whether each piece takes at least some milliseconds; otherwise they run one after the other.

    Returns:
        The results in the order of the pieces.

    """
    workers = workers_for(device)
    uneven = len(pieces) % workers > 0 and len(pieces) < _PIECES_PER_WORKER * workers
    if not worth or workers < 2 or uneven or _get_current_dispatch_mode() is not None:
        return [work(piece) for piece in pieces]
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def in_worker(piece: Piece) -> Result:
        # Both are settings of a thread, so each worker needs them.
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
            return work(piece)

    futures = [pool(workers, torch.get_num_threads() // workers).submit(in_worker, piece) for piece in pieces]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def workers_for(device: torch.device) -> int:
    """Number of pieces that run at once."""
    return min(torch.get_num_threads(), _MOST_WORKERS) if device.type == "cpu" else 1


@cache
def pool(workers: int, threads_each: int) -> ThreadPoolExecutor:
    """Worker threads, kept for reuse; each uses `threads_each` threads for the operations of torch."""
    threads_here = torch.get_num_threads()
    ready = threading.Barrier(workers + 1)

    def begin() -> None:
        torch.get_num_threads()  # the first call in a thread sets the number of the process
        torch.set_num_threads(threads_each)
        ready.wait()

    executor = ThreadPoolExecutor(workers, "bayesify")
    for _ in range(workers):
        executor.submit(begin)
    ready.wait()
    # A worker's call also changes the number with which new threads start.
    torch.set_num_threads(threads_here)
    return executor


if hasattr(os, "register_at_fork"):
    # A child process does not have the threads of its parent.
    os.register_at_fork(after_in_child=pool.cache_clear)
