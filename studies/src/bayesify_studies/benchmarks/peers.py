"""A training step of ours beside those of other libraries: the same work, one process each, in turns.

Each library has a small file in `benchmarks/peers/` that makes its documented training step on 784-400-400-10 with a
batch of 128; a process for each runs it when the driver says so, so that no two work at once and none loads another's
code. The plain step is one of them, and so is ours. `make bench` makes the environment; a library that is not there is
left out with its reason.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bayesify.errors import at_least, choose
from bayesify_studies.benchmarks import timing

PYTHON = "BAYESIFY_PEERS_PYTHON"
FOLDER = Path(__file__).parents[3] / "scripts" / "peers"
ENVIRONMENT = Path(__file__).parents[4] / ".bench-venv"
PLAIN, OURS = ("plain_step",), ("bayesify_step", "bayesify_fit")
# The file that measures it, and what pip calls it.
PEERS = {
    "bayesian_torch_step": "bayesian-torch",
    "torchbnn_step": "torchbnn",
    "blitz_step": "blitz-bayesian-pytorch",
    "torch_uncertainty_step": "torch-uncertainty",
    "posteriors_step": "posteriors",
    "ivon_step": "ivon-opt",
    "laplace_fit": "laplace-torch",
}
# Threads of the one before may still be spinning.
_PAUSE = 0.15
_PATIENCE = 900.0


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    rounds: int = 10,
    steps: int = 10,
    python: str | None = None,
    only: Sequence[str] | None = None,
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Milliseconds per step of every library, how many times a plain step that is, and how ours compares.

    Args:
        units: of each of two hidden layers.
        batch_size: examples per step.
        rounds: in which they take turns.
        steps: of each per round.
        python: of the environment that has them; by default $BAYESIFY_PEERS_PYTHON, then the one of `make bench`.
        only: some of their names.
        compiled: ours by the compiled step.
        progress: told what is going on.

    """
    for name, value in (("units", units), ("batch_size", batch_size), ("rounds", rounds), ("steps", steps)):
        at_least(name, value, 1)
    if not FOLDER.is_dir():
        raise ValueError("benchmarks/peers is not part of an installed package: run from a checkout")
    for name in only or ():
        choose("peer", name, PEERS.values())
    interpreter = find_python(python)
    known = {file: name for file, name in PEERS.items() if only is None or name in only}
    settings = ["--units", str(units), "--batch-size", str(batch_size), *([] if compiled else ["--eager"])]
    workers: dict[str, Worker] = {}
    skipped: dict[str, str] = {}
    try:
        for file in (*PLAIN, *OURS, *known):
            # Ours and the plain step run in the peers' environment too, where it is complete.
            progress(f"starting {file}")
            worker = Worker(interpreter, file, settings)
            if worker.problem:
                name = known.get(file, file)
                skipped[name] = not_installed(interpreter, name) or without_places(worker.problem)
            else:
                workers[file] = worker
        if PLAIN[0] not in workers:
            raise ValueError(f"{interpreter} cannot make a plain step: {skipped[PLAIN[0]]}")
        timings = _turns(workers, rounds, steps, progress)
    finally:
        for worker in workers.values():
            worker.stop()
    plain = timings[PLAIN[0], "plain"]
    rows = [
        row_of(PEERS.get(file, "bayesify"), what, workers[file].told["version"], values, plain)
        for (file, what), values in timings.items()
        if file not in PLAIN
    ]
    return {
        "plain_ms": statistics.median(plain.values()),
        "rows": with_ours(rows),
        "skipped": skipped,
        "units": units,
        "batch_size": batch_size,
        "rounds": rounds,
        "steps": steps,
        "threads": workers[PLAIN[0]].told["threads"],
        "torch": workers[PLAIN[0]].told["torch"],
    }


def find_python(given: str | None = None) -> str:
    """The Python that has the peers: the one given, the environment's variable, that of `make bench`, or this one."""
    made = [ENVIRONMENT / "bin" / "python", ENVIRONMENT / "Scripts" / "python.exe"]
    there = [str(python) for python in made if python.exists()]
    return given or os.environ.get(PYTHON) or (there[0] if there else sys.executable)


def not_installed(python: str, name: str) -> str:
    """Why the environment has no such library, where making it recorded that."""
    record = Path(python).parent.parent / "peers.json"
    said = json.loads(record.read_text()).get(name, "") if record.is_file() else ""
    return said if str(said).startswith("not installed") else ""


def without_places(text: str) -> str:
    """An error's words without addresses and paths, which belong to one machine."""
    return re.sub(r"(https?|file)://\S+|(?<![\w.])/[\w./-]+", "...", text)


class Worker:
    """One library's process: started once, told to work, told to stop."""

    def __init__(self, python: str, file: str, settings: Sequence[str]) -> None:
        self.problem = ""
        self.told: dict[str, Any] = {}
        command = [python, str(FOLDER / "worker.py"), file, *settings]
        paths = [str(FOLDER.parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        if file in OURS:
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        try:
            self.process = subprocess.Popen(  # noqa: S603 -- our own script
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
        except OSError as problem:
            self.problem = f"cannot run its Python: {problem.strerror}"
            return
        self.told = self._hear()
        if "ready" not in self.told:
            self.problem = self.told.get("skipped", "it ended, or was ended after a long silence, without a word")
            self.stop()

    def turn(self, steps: int) -> dict[str, float]:
        """Milliseconds per step of each of its candidates; of those that have not had enough."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {}
        return self._hear()

    def stop(self) -> None:
        """End it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # One that hangs is ended, which closes what is read here.
        patience = threading.Timer(_PATIENCE, self.process.kill)
        patience.start()
        try:
            line = self.process.stdout.readline()
        finally:
            patience.cancel()
        found: dict[str, Any] = json.loads(line) if line.strip() else {}
        return found


Timings = dict[tuple[str, str], dict[int, float]]


def _turns(workers: Mapping[str, Worker], rounds: int, steps: int, progress: timing.Progress) -> Timings:
    """Milliseconds by file, candidate and round."""
    timings: Timings = {(file, what): {} for file, worker in workers.items() for what in worker.told["ready"]}
    for number in range(rounds):
        for file, worker in workers.items():
            progress(f"round {number + 1} of {rounds}: {file}")
            time.sleep(_PAUSE)
            for what, value in worker.turn(steps).items():
                timings[file, what][number] = value
    return {key: values for key, values in timings.items() if values}


def row_of(
    library: str, what: str, version: str, values: Mapping[int, float], plain: Mapping[int, float]
) -> dict[str, Any]:
    """One line of the table: a library's median, and its ratio to the plain step of the same rounds."""
    rounds = [number for number in values if number in plain]
    over, under = [values[number] for number in rounds], [plain[number] for number in rounds]
    found = timing.ratio(over, under)
    return {
        "library": library,
        "what": what,
        "version": version,
        "ms": statistics.median(values.values()),
        "ratio": found["ratio"],
        "ratio_quartiles": found["quartiles"],
        "rounds": len(rounds),
    }


def with_ours(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every peer's line with how many times as long it takes as ours does for the same thing."""
    ours = {row["what"]: row["ratio"] for row in rows if row["library"] == "bayesify"}
    return [row | {"to_ours": row["ratio"] / ours[row["what"]]} if _comparable(row, ours) else row for row in rows]


def _comparable(row: Mapping[str, Any], ours: Mapping[str, float]) -> bool:
    return row["library"] != "bayesify" and row["what"] in ours


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    said = [f"a plain step takes {result['plain_ms']:.2f} ms; in units of it:"]
    for row in result["rows"]:
        against = f", {row['to_ours']:.1f} times ours" if "to_ours" in row else ""
        said.append(f"  {row['library']} {row['version']}, {row['what']}: {row['ratio']:.2f}{against}")
    said += [f"  {name}: skipped ({why})" for name, why in result["skipped"].items()]
    return said
