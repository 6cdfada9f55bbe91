"""Compute the cells in many processes, each with one thread and a time limit, into a file of JSON lines.

    python -m bayesify_studies.experiments.defaults.run --processes 14 --data FOLDER --out FOLDER --minutes 9

A cell that is in the file is not computed again: the command can be stopped and repeated. It needs torch, NumPy, SciPy,
scikit-learn and what `import bayesify` needs, and nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bayesify_studies.experiments.defaults.lines import FILE, read

# A cell that waits for a busy machine may take this many times its limit.
WAITED = 4.0


@dataclasses.dataclass
class _Running:
    process: Any
    results: Connection
    cell: Any
    began: float


def work_through(
    folder: Path,
    size: Any,
    *,
    processes: int = 1,
    minutes: float | None = None,
    source: str | None = None,
    say: bool = True,
    order: Callable[[Any, Any], list[Any]] | None = None,
) -> int:
    """Compute the cells that the file lacks, until all are there or the minutes are over.

    Args:
        folder: of the file.
        size: how much is asked for (`cells.Size`).
        processes: how many cells at once.
        minutes: after which the cells in work are given up; None works until all are done.
        source: the commit of the code, where git cannot tell it.
        say: print a line for each cell.
        order: the cells that a file still lacks, most important first, from its lines and the size; None is that of
            this experiment.

    Returns:
        The number of cells that are still missing and can be computed.

    """
    import torch

    from bayesify_studies.experiments.defaults import cells
    from bayesify_studies.experiments.framework.provenance import commit
    from bayesify_studies.experiments.framework.work import machine

    missing = order or cells.missing
    # Before a fork: a pool of threads does not survive it.
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    lines = read(path)
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    # A fork shares what is loaded; a process that starts afresh would spend seconds on imports.
    context = multiprocessing.get_context("fork")
    running: list[_Running] = []
    about = {"commit": source or commit(), "machine": machine("cpu")}
    try:
        with path.open("a", encoding="utf-8") as file:
            while time.monotonic() < end:
                busy = {one.cell.key for one in running}
                todo = [cell for cell in missing(lines, size) if cell.key not in busy]
                for cell in todo[: processes - len(running)]:
                    running.append(_start(context, cell))
                if not running:
                    return 0
                wait([one.results for one in running], timeout=min(1.0, max(0.0, end - time.monotonic())))
                for one in [one for one in running if _over(one)]:
                    running.remove(one)
                    line = {"key": one.cell.key, **_result(one), **about, "date": _now()}
                    lines[one.cell.key] = line
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    if say:
                        print(f"{line['status']:12} {line.get('seconds', 0):6.1f} s  {one.cell.key}", flush=True)
    finally:
        for one in running:
            one.process.kill()
            one.process.join()
    return len(missing(lines, size))


def take_over(known: Path, folder: Path) -> int:
    """Copy the lines of an earlier file that are still true, where the folder lacks them.

    Args:
        known: a file of cells.
        folder: of the file to add to.

    Returns:
        How many were copied.

    """
    if not known.is_file():
        raise ValueError(f"{known} is not a file of cells")
    folder.mkdir(parents=True, exist_ok=True)
    there = read(folder / FILE)
    new = [line for key, line in read(known).items() if still_true(key, line["status"]) and key not in there]
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(line)) + "\n" for line in new)
    return len(new)


# Methods whose defaults and checks for classes are those of the published cells, by problem. Numbers have new checks.
_IMAGES, _ALIKE = ("digits", "mnist", "fashion-mnist"), ("point", "ensemble", "mc-dropout", "variational", "swag")
UNCHANGED = {
    **dict.fromkeys(("moons", "circles"), (*_ALIKE, "laplace")),
    **dict.fromkeys(_IMAGES, (*_ALIKE, "ivon", "auto")),
    "clinc": _ALIKE,
}


def still_true(key: str, status: str) -> bool:
    """Whether a cell of an earlier file needs not be computed again: baselines, posteriors, unchanged defaults."""
    part, problem, method, *_ = key.split("|")
    unchanged = part == "default" and status == "fine" and method in UNCHANGED.get(problem, ())
    return part in {"baseline", "posterior"} or unchanged


def _start(context: Any, cell: Any) -> _Running:
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_compute, args=(cell, there), daemon=True)
    process.start()
    there.close()
    return _Running(process, here, cell, time.monotonic())


def _compute(cell: Any, results: Connection) -> None:
    """In a process of its own: a cell's scores, or why there are none."""
    from threadpoolctl import threadpool_limits

    from bayesify.errors import TrainingError
    from bayesify.files import plain
    from bayesify_studies.experiments.defaults import cells
    from bayesify_studies.experiments.defaults.fits import UnaffordableError

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Seconds of the processor, which other work on the machine does not use up.
    allowed = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cell.limit + time.process_time()), allowed))
    try:
        with threadpool_limits(1):
            found = {"status": cells.FINE, **plain(cells.compute(cell))}
    except UnaffordableError as problem:
        found = {"status": cells.UNAFFORDABLE, "reason": str(problem)}
    except TrainingError as problem:
        # It says by itself that it failed.
        found = {"status": cells.FAILED, "reason": _line(problem), "warnings": ["error"]}
    except (ValueError, MemoryError) as problem:
        found = {"status": cells.REFUSED, "reason": _line(problem)}
    except Exception as problem:  # noqa: BLE001 -- one cell must not end the others
        found = {"status": "broken", "reason": f"{type(problem).__name__}: {_line(problem)}"}
    results.send_bytes(json.dumps(found).encode())
    results.close()


def _over(one: _Running) -> bool:
    return one.results.poll() or not one.process.is_alive() or time.monotonic() - one.began > WAITED * one.cell.limit


def _result(one: _Running) -> dict[str, Any]:
    from bayesify_studies.experiments.defaults import cells

    found: dict[str, Any]
    try:
        found = json.loads(one.results.recv_bytes()) if one.results.poll() else {}
    except EOFError:
        found = {}
    slow = one.process.is_alive()
    if not found and slow:
        one.process.kill()
    one.process.join()
    if not found and (slow or one.process.exitcode == -signal.SIGXCPU):
        found = {"status": cells.UNAFFORDABLE, "reason": f"more than {one.cell.limit:.0f} s of one core"}
    one.results.close()
    return found or {"status": "broken", "reason": f"the process ended with code {one.process.exitcode}"}


def _line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def main() -> None:
    """Read the arguments, and compute."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="cells at once, one thread each")
    parser.add_argument("--data", type=Path, help="the folder of the data (default: $BAYESIFY_DATA)")
    parser.add_argument("--out", type=Path, required=True, help=f"the folder of {FILE}")
    parser.add_argument("--minutes", type=float, help="stop after this many")
    parser.add_argument("--only", nargs="+", default=None, help="parts: default baseline posterior distance try tuned")
    parser.add_argument("--problems", nargs="+", default=None)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--known", type=Path, help="a file of cells: what is still true of it is taken over")
    parser.add_argument("--commit", help="of the code, where git cannot tell it")
    parser.add_argument("--page", type=Path, help="write the page of the cells in --out to this new folder, and stop")
    parser.add_argument("--pack", action="store_true", help="write the images that are used into one file, and stop")
    given = parser.parse_args()
    if given.data is not None:
        os.environ["BAYESIFY_DATA"] = str(given.data.resolve())
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from bayesify.errors import at_least, choose
    from bayesify_studies.experiments.defaults import cells, page_of, problems

    try:
        if given.pack:
            print(problems.pack(given.out))
            return
        if given.page is not None:
            page_of(given.out, given.page)
            print(given.page / "page.md")
            return
        named = {"parts": given.only, "problems": given.problems, "methods": given.methods}
        known = {"parts": cells.PARTS, "problems": tuple(problems.PROBLEMS), "methods": cells.METHODS}
        for what, names in named.items():
            for name in names or ():
                choose(what.removesuffix("s"), name, known[what])
        at_least("processes", given.processes, 1)
        chosen: dict[str, Any] = {what: tuple(names) for what, names in named.items() if names}
        # A tuned fit counts only beside the fit at the defaults of its seed.
        few = min(given.seeds, cells.Size.tuned_seeds)
        size = dataclasses.replace(cells.Size(seeds=given.seeds, tuned_seeds=few), **chosen)
        # A machine without the data would compute nothing but refusals.
        if {"default", "baseline", "try", "tuned"} & set(size.parts):
            for name in {"boston", "clinc", "mnist"} & set(size.problems):
                problems.PROBLEMS[name].make(0)
        # Read once, and shared by every process.
        for name in {"mnist", "fashion-mnist", "clinc"} & set(size.problems):
            problems.PROBLEMS[name].make(0)
        if given.known is not None:
            take_over(given.known, given.out)
        left = work_through(given.out, size, processes=given.processes, minutes=given.minutes, source=given.commit)
    except (ValueError, OSError) as problem:
        sys.exit(f"error: {_line(problem)}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on where it stopped")
    print(f"{len(read(given.out / FILE)):,} cells in {given.out / FILE}, {left:,} left")


if __name__ == "__main__":
    main()
