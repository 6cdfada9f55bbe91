"""The games of `bayesify reproduce bandits` alone, in processes and within a time: parts that `reproduce` then reads.

    python -m bayesify_studies.experiments.bandits.run --processes 6 --minutes 8 --out FOLDER

Games that are done are not played again. What does not fit in the time is left out, the most important games come first.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bayesify_studies.experiments.bandits import parts
from bayesify_studies.experiments.bandits.settings import FULL, QUICK


def main() -> None:
    """Read the command line and play."""
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("--processes", type=int, default=1)
    reader.add_argument("--minutes", type=float, default=60.0)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--preset", choices=("quick", "full"), default="full")
    asked = reader.parse_args()
    settings = QUICK if asked.preset == "quick" else FULL
    settings = json.loads(json.dumps(settings))
    end = time.monotonic() + 60 * asked.minutes
    folder = asked.out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), _one_thread) as pool:
        if not _play(pool, folder, parts.pilots(settings), asked.processes, end):
            return
        told = {name: json.loads((folder / f"{name}.json").read_text()) for name in parts.pilots(settings)}
        best = parts.chosen(parts.choices(settings, told))
        print(best, flush=True)
        _play(pool, folder, parts.scored(settings, best, seeds), asked.processes, end)


def _play(
    pool: ProcessPoolExecutor, folder: Path, games: Mapping[str, parts.Part], processes: int, end: float
) -> bool:
    """Play what is missing until the time is over; whether all is done."""
    missing = [name for name in games if not (folder / f"{name}.json").is_file()]
    running: set[Future[None]] = set()
    while (missing and time.monotonic() < end) or running:
        while missing and len(running) < processes and time.monotonic() < end:
            name = missing.pop(0)
            running.add(pool.submit(_one, folder, name, games[name]))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for one in done:
            one.result()
    print(f"{len(games) - len(missing)} of {len(games)} games", flush=True)
    return not missing


def _one(folder: Path, name: str, part: parts.Part) -> None:
    began = time.perf_counter()
    found: dict[str, Any] = part[0](*part[1:])
    where = f"{platform.machine()}, 1 thread, torch {torch.__version__}"
    spent = {"seconds": time.perf_counter() - began, "machine": where}
    partial = folder / f".{name}"
    partial.write_text(json.dumps(spent | found))
    partial.rename(folder / f"{name}.json")


def _one_thread() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
