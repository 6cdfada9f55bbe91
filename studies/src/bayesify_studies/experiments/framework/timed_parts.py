"""Parts of an experiment in processes and within a time, without pages: files that `reproduce` reads later.

Needs no package for figures or the command line, so that it runs where only torch, numpy, scipy and scikit-learn are
installed. Parts that are there are not computed again; they are begun in order, the most important first.

Where the amount of work of each part is known, a part is begun only if it can end in time, judged by the parts that are
done. What was not begun is left as a file with the key `skipped`, so that a page can be made without it.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bayesify_studies.experiments.framework.code_state import digest
from bayesify_studies.experiments.framework.provenance import commit
from bayesify_studies.experiments.framework.work import machine

Part = tuple[Any, ...]
Settings = Mapping[str, Any]
Told = Mapping[str, Mapping[str, Any]]


def main(
    quick: Settings,
    full: Settings,
    pilots: Callable[[Settings, str], Mapping[str, Part]],
    scored: Callable[[Settings, Told, str], Mapping[str, Part]],
    amount: Callable[[Part], float] | None = None,
    before: float = 0.0,
    cpu: Settings | None = None,
) -> None:
    """Read the command line, compute the parts that choose, then those that are scored.

    Args:
        quick: settings of the quick preset.
        full: settings of the full one.
        pilots: makes the parts that choose.
        scored: makes the parts that are scored, from what the first ones told.
        amount: the work of a part, in any unit; None begins parts until the time is over. A part that is done tells
            the seconds that its work took as `work_seconds`.
        before: seconds that a part takes before its work begins, for data and compiling.
        cpu: settings of the preset for one core, where there is one.

    """
    presets = {"quick": quick, "full": full} | ({} if cpu is None else {"cpu": cpu})
    reader = argparse.ArgumentParser(description="Parts of an experiment, in processes and within a time.")
    reader.add_argument("--processes", type=int, default=1)
    reader.add_argument("--minutes", type=float, default=60.0)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--preset", choices=presets, default="full")
    reader.add_argument("--device", default="cpu")
    asked = reader.parse_args()
    settings = json.loads(json.dumps(presets[asked.preset]))
    end = time.monotonic() + 60 * asked.minutes
    folder = asked.out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), _one_thread) as pool:

        def compute(parts: Mapping[str, Part]) -> bool:
            queue = _Queue(folder, parts, end, amount, before)
            return _compute(pool, folder, queue, asked.processes, asked.device)

        choosing = pilots(settings, asked.device)
        if compute(choosing) or amount is not None:
            told = {name: _read(folder, name) for name in choosing if (folder / f"{name}.json").is_file()}
            compute(scored(settings, told, asked.device))


class _Queue:
    """The parts that are missing, and which of them to begin next.

    Args:
        folder: has the parts that are done.
        parts: by name, in the order of importance.
        end: when the time is over, by the monotonic clock.
        amount: the work of a part.
        before: seconds before the work of a part begins.

    """

    def __init__(
        self,
        folder: Path,
        parts: Mapping[str, Part],
        end: float,
        amount: Callable[[Part], float] | None,
        before: float,
    ) -> None:
        self.folder, self.parts, self.end, self.amount, self.before = folder, parts, end, amount, before
        self.missing = [name for name in parts if not (folder / f"{name}.json").is_file() or _skipped(folder, name)]

    def next(self) -> str | None:
        """The first part that can end in time; None where there is none."""
        left = self.end - time.monotonic()
        for place, name in enumerate(self.missing):
            if left > 0 and self._expected(name) <= left:
                return self.missing.pop(place)
        return None

    def _expected(self, name: str) -> float:
        if self.amount is None:
            return 0.0
        done = [_read(self.folder, file.stem) for file in self.folder.glob("*.json")]
        speeds = [one["work_seconds"] / one["work"] for one in done if one.get("work_seconds")]
        return self.before + self.amount(self.parts[name]) * (sorted(speeds)[len(speeds) // 2] if speeds else 0.0)

    def close(self) -> None:
        """Leave a note for each part that was not begun."""
        if self.amount is not None:
            for name in self.missing:
                note = {"skipped": "not begun: it would not have ended in time", "seconds": 0.0, "machine": ""}
                _write(self.folder, name, note)


def _compute(pool: ProcessPoolExecutor, folder: Path, queue: _Queue, processes: int, device: str) -> bool:
    """Compute what is missing until the time is over; whether all is done."""
    running: set[Future[None]] = set()
    while True:
        while len(running) < processes and (name := queue.next()) is not None:
            part = queue.parts[name]
            work = queue.amount(part) if queue.amount is not None else None
            running.add(pool.submit(_one, folder, name, part, device, work))
        if not running:
            break
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for one in done:
            problem = one.exception()
            if problem is not None:  # the other parts do not depend on it
                print(*traceback.format_exception(problem), sep="", flush=True)
    queue.close()
    made = sum((folder / f"{name}.json").is_file() and not _skipped(folder, name) for name in queue.parts)
    print(f"{made} of {len(queue.parts)} parts", flush=True)
    return made == len(queue.parts)


def _one(folder: Path, name: str, part: Part, device: str, work: float | None) -> None:
    began = time.perf_counter()
    found: dict[str, Any] = part[0](*part[1:])
    spent = {
        "seconds": time.perf_counter() - began,
        "machine": machine(device),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "code": {part[0].__module__: digest(part[0].__module__)},
    }
    _write(folder, name, spent | ({} if work is None else {"work": work}) | found)
    print(name, f"{spent['seconds']:.0f} s", flush=True)


def _write(folder: Path, name: str, found: Mapping[str, Any]) -> None:
    partial = folder / f".{name}"
    partial.write_text(json.dumps(found))
    partial.rename(folder / f"{name}.json")


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _skipped(folder: Path, name: str) -> bool:
    return "skipped" in _read(folder, name)


def _one_thread() -> None:
    torch.set_num_threads(1)
