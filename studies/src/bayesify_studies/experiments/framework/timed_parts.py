"""Parts of an experiment in processes and within a time, without pages: files that `reproduce` reads later.

Needs no package for figures or the command line, so that it runs where only torch, numpy, scipy and scikit-learn are
installed. Parts that are there are not computed again; they are begun in order, the most important first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bayesify_studies.experiments.framework.work import machine

Part = tuple[Any, ...]
Settings = Mapping[str, Any]
Told = Mapping[str, Mapping[str, Any]]


def main(
    quick: Settings,
    full: Settings,
    pilots: Callable[[Settings, str], Mapping[str, Part]],
    scored: Callable[[Settings, Told, str], Mapping[str, Part]],
) -> None:
    """Read the command line, compute the parts that choose, then those that are scored."""
    reader = argparse.ArgumentParser(description="Parts of an experiment, in processes and within a time.")
    reader.add_argument("--processes", type=int, default=1)
    reader.add_argument("--minutes", type=float, default=60.0)
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--preset", choices=("quick", "full"), default="full")
    reader.add_argument("--device", default="cpu")
    asked = reader.parse_args()
    settings = json.loads(json.dumps(quick if asked.preset == "quick" else full))
    end = time.monotonic() + 60 * asked.minutes
    folder = asked.out / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), _one_thread) as pool:

        def compute(parts: Mapping[str, Part]) -> bool:
            return _compute(pool, folder, parts, asked.processes, asked.device, end)

        choosing = pilots(settings, asked.device)
        if compute(choosing):
            told = {name: json.loads((folder / f"{name}.json").read_text()) for name in choosing}
            compute(scored(settings, told, asked.device))


def _compute(
    pool: ProcessPoolExecutor, folder: Path, parts: Mapping[str, Part], processes: int, device: str, end: float
) -> bool:
    """Compute what is missing until the time is over; whether all is done."""
    missing = [name for name in parts if not (folder / f"{name}.json").is_file()]
    running: set[Future[None]] = set()
    while (missing and time.monotonic() < end) or running:
        while missing and len(running) < processes and time.monotonic() < end:
            name = missing.pop(0)
            running.add(pool.submit(_one, folder, name, parts[name], device))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for one in done:
            one.result()
    print(f"{len(parts) - len(missing)} of {len(parts)} parts", flush=True)
    return not missing


def _one(folder: Path, name: str, part: Part, device: str) -> None:
    began = time.perf_counter()
    found: dict[str, Any] = part[0](*part[1:])
    spent = {"seconds": time.perf_counter() - began, "machine": machine(device)}
    partial = folder / f".{name}"
    partial.write_text(json.dumps(spent | found))
    partial.rename(folder / f"{name}.json")
    print(name, f"{spent['seconds']:.0f} s", flush=True)


def _one_thread() -> None:
    torch.set_num_threads(1)
