"""The demo's runs, which the studio shows where no others are given."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from bayesify.data.locations import cache
from bayesify.errors import RunError
from bayesify.runs import UNKNOWN, read_config
from bayesify.workflows import demo
from bayesify.workflows.load import load_run
from bayesify.workflows.unknown_check import fit_check, training_inputs

# The demo's fifth run, an ensemble at a fifth of the budget, is for its report.
SHOWN = ("plain", "ensemble", "mc-dropout", "variational")
HERE = Path("runs/demo")


def find_demo() -> list[Path]:
    """The demo's runs, from `runs/demo` or from the user's cache; an empty list where there are none."""
    found = _complete(HERE) or _complete(_cached())
    add_checks(found)
    return found


def make_demo(*, quick: bool = False, progress: bool = True, console: Console | None = None) -> list[Path]:
    """Make the demo's runs in the user's cache (a minute)."""
    demo.run(_cached(), quick=quick, progress=progress, console=console)
    return _complete(_cached())


def demo_runs(*, quick: bool = False) -> list[Path]:
    """The demo's runs, found or made."""
    return find_demo() or make_demo(quick=quick)


def add_checks(folders: list[Path]) -> None:
    """Fit the check for unknown inputs of demo runs that an earlier version made without one."""
    for folder in folders:
        if not (folder / UNKNOWN).is_file():
            fit_check(load_run(folder), folder, training_inputs(folder))


def _cached() -> Path:
    return cache() / "studio-demo"


def _complete(folder: Path) -> list[Path]:
    runs = [folder / name for name in SHOWN]
    return runs if all(map(_is_complete, runs)) else []


def _is_complete(run: Path) -> bool:
    try:
        return bool(read_config(run).get("complete", True))
    except RunError:
        return False
