"""Parts on this machine: one after the other in this process, or in several processes.

A process that is killed is replaced, and its part goes on from what it left in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch

from bayesify.errors import TrainingError
from bayesify.jobs.parts import Part, carry_out
from bayesify.training.warnings import without_warnings

# Losses in a row, without a finished part between them, after which it is no accident.
_MOST_LOSSES = 3


class ThisProcess:
    """Parts one after the other in this process.

    Args:
        threads: threads of torch; None leaves them as they are.
        share: as in `Engine`.

    """

    inside = here = True

    def __init__(self, *, threads: int | None = None, share: tuple[int, int] = (1, 1)) -> None:
        self.share, self._threads = share, threads

    def run(self, parts: Sequence[Part], shared: tuple[Any, ...]) -> Iterator[Part]:
        """Carry out parts in their order."""
        before = torch.get_num_threads()
        try:
            for part in parts:
                carry_out(part, part.folder, shared, self._threads or before)
                yield part
        finally:
            torch.set_num_threads(before)


class LocalProcesses:
    """Parts in several processes of this machine.

    Args:
        jobs: processes at once.
        threads: threads of torch in each.
        share: as in `Engine`.

    """

    inside, here = False, True

    def __init__(self, jobs: int, *, threads: int = 1, share: tuple[int, int] = (1, 1)) -> None:
        self.share, self.jobs, self._threads = share, jobs, threads

    def run(self, parts: Sequence[Part], shared: tuple[Any, ...]) -> Iterator[Part]:
        """Carry out parts as processes become free; a first error stops the rest."""
        waiting, losses = list(parts), 0
        while waiting:
            try:
                for part in self._in_one_pool(waiting, shared):
                    waiting.remove(part)
                    losses = 0
                    yield part
            except BrokenProcessPool:
                losses += 1
                if losses > _MOST_LOSSES:
                    reason = "a process was killed before it finished a part, time and again"
                    raise TrainingError(f"{reason}: is there enough memory for --jobs {self.jobs}?") from None

    def _in_one_pool(self, parts: Sequence[Part], shared: tuple[Any, ...]) -> Iterator[Part]:
        workers = min(self.jobs, len(parts))
        # Threads do not survive a fork, so processes start afresh.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _receive, (shared, self._threads))
        try:
            running: dict[Future[None], Part] = {pool.submit(_work, part): part for part in parts}
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                broken = False
                for future in done:
                    part = running.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        broken = True
                        continue
                    future.result()
                    yield part
                if broken:
                    raise BrokenProcessPool
        finally:
            pool.shutdown(cancel_futures=True)


_shared: tuple[Any, ...] = ()
_threads = 1


def _receive(shared: tuple[Any, ...], threads: int) -> None:
    global _shared, _threads
    _shared, _threads = shared, threads


def _work(part: Part) -> None:
    # Only the caller's process talks to a person; what a method warns of is saved with it.
    with without_warnings():
        carry_out(part, part.folder, _shared, _threads)
