"""A part of a piece of work, and how many of them are carried out: each once, by an engine, with one progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from bayesify.training.progress_bar import progress_bar


@dataclass(frozen=True)
class Part:
    """Something to compute on its own, whose results are files in a folder.

    Args:
        folder: where the results belong; no two parts share one.
        work: a function of a module, called as `work(folder, *shared, *arguments)`. It may find what an interrupted
            call left in the folder. Its result depends on its arguments alone.
        arguments: what can be sent to another process.
        done: the file that `work` writes last.

    """

    folder: Path
    work: Callable[..., object]
    arguments: tuple[Any, ...]
    done: str

    @property
    def finished(self) -> bool:
        """Whether the results are there."""
        return (self.folder / self.done).is_file()


class UnfinishedError(Exception):
    """Parts are left, so that nothing can be concluded yet: other jobs of an array have them.

    Args:
        missing: how many.
        of: all parts.

    """

    def __init__(self, missing: int, of: int) -> None:
        super().__init__(f"{missing} of {of} parts are left to other jobs; the same command without --part concludes")
        self.missing, self.of = missing, of


class Engine(Protocol):
    """Where parts are carried out.

    Attributes:
        share: `(i, n)` carries out every n-th part alone, from the i-th on, counted from 1.
        inside: whether parts run in this process, and may show their own progress.
        here: whether parts run on this machine, and so with its devices.

    """

    share: tuple[int, int]
    inside: bool
    here: bool

    def run(self, parts: Sequence[Part], shared: tuple[Any, ...]) -> Iterator[Part]:
        """Carry out parts, in any order.

        Args:
            parts: that are not finished.
            shared: arguments of all parts, sent once to each worker.

        Yields:
            Each part once its results are in its folder.

        """
        ...


def run_parts(
    parts: Sequence[Part], engine: Engine, *, shared: tuple[Any, ...] = (), unit: str = "part", progress: bool = True
) -> list[Part]:
    """Carry out the parts that are not finished.

    Args:
        parts: all parts, in an order that is the same in every call.
        engine: where they run.
        shared: arguments of all parts.
        unit: what a part is called in the progress bar.
        progress: show one bar for all parts (never when the output is not a terminal).

    Returns:
        The parts that are still not finished: those of other shares.

    """
    first, of = engine.share
    own = parts[first - 1 :: of]
    missing = [part for part in own if not part.finished]
    bar = progress_bar(total=len(own), initial=len(own) - len(missing), unit=unit, show=progress and not engine.inside)
    with bar:
        for part in engine.run(missing, shared):
            bar.set_postfix_str(part.folder.name)
            bar.update()
    return [part for part in parts if not part.finished]


def carry_out(part: Part, folder: Path, shared: tuple[Any, ...], threads: int) -> None:
    """What a worker does with a part.

    Args:
        part: the part.
        folder: where to write, which need not be that of the part.
        shared: arguments of all parts.
        threads: threads of torch: their number decides the order of sums, and so the last bits.

    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(threads)
    part.work(folder, *shared, *part.arguments)
