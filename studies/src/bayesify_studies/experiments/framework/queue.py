"""Parts of several experiments from one queue, within a time: `python -m ...framework.queue --out FOLDER`.

Each line of the queue names an experiment and the beginning of its parts' names. Several processes may share a folder:
a part belongs to the process that makes its mark first. Results are the experiments' own parts, which `bayesify
reproduce` and `studies/scripts/add_to_page.py` read. A part that fails is told and left out; the others go on. Needs no
package for figures or the command line.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bayesify.errors import RunError
from bayesify_studies.experiments import find
from bayesify_studies.experiments.framework.additions import Parts
from bayesify_studies.experiments.framework.experiment import Experiment, claim
from bayesify_studies.experiments.framework.work import Work

Line = Sequence[str]


def main() -> None:
    """Read the command line and compute."""
    reader = argparse.ArgumentParser(description="Parts of several experiments, in order, within a time.")
    reader.add_argument("queue", nargs="+", help="EXPERIMENT:BEGINNING, in order")
    reader.add_argument("--minutes", type=float, default=60.0)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--preset", choices=("quick", "full"), default="full")
    reader.add_argument("--device", default="cpu")
    asked = reader.parse_args()
    torch.set_num_threads(1)
    compute([one.split(":", 1) for one in asked.queue], asked.out, asked.preset, asked.device, 60 * asked.minutes)


def compute(queue: Sequence[Line], out: Path, preset: str, device: str, seconds: float) -> list[str]:
    """Compute what no other process has begun until the time is over; the names of what failed."""
    end, failed = time.monotonic() + seconds, []
    for name, work, part, task in _tasks(queue, out, preset, device):
        if time.monotonic() > end:
            break
        if work.has(part) or not _mine(work.folder, part):
            continue
        began = time.monotonic()
        try:
            work.once(part, *task)
            print(f"{name}:{part} {time.monotonic() - began:.0f} s", flush=True)
        except Exception:  # noqa: BLE001  (a part that fails must not take the others with it)
            failed.append(f"{name}:{part}")
            print(f"{name}:{part} failed\n{traceback.format_exc()}", flush=True)
    return failed


def parts_of(experiment: Experiment, work: Work) -> dict[str, tuple[Any, ...]]:
    """The parts of an experiment that do not depend on others, its additions' among them, by name."""
    named: Mapping[str, Any] = {} if experiment.parts is None else experiment.parts(work)
    found: dict[str, tuple[Any, ...]] = dict(named)
    for one in experiment.additions:
        more: Parts = one.parts(work)
        found |= more
    return found


def _tasks(
    queue: Sequence[Line], out: Path, preset: str, device: str
) -> Iterator[tuple[str, Work, str, tuple[Any, ...]]]:
    for name, beginning in queue:
        experiment = find(name)
        folder = out / name
        try:
            claim(folder, experiment, preset)
        except RunError:
            # Another process may be just writing the file that says what the folder holds.
            time.sleep(1)
            claim(folder, experiment, preset)
        work = Work(folder, experiment.settings(preset), device=device, progress=False)
        for part, task in parts_of(experiment, work).items():
            if part.startswith(beginning):
                yield name, work, part, task


def _mine(folder: Path, part: str) -> bool:
    """Whether this process is the first to begin a part."""
    marks = folder / "begun"
    marks.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(marks / part, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main()
