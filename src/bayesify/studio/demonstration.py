"""The runs that the studio shows where no others are given: on MNIST where that is here, else those of the demo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bayesify.data.locations import cache
from bayesify.runs import UNKNOWN
from bayesify.studio import pad_networks
from bayesify.workflows import demo
from bayesify.workflows.load import load_run
from bayesify.workflows.unknown_check import fit_check, training_inputs

# The demo's fifth run, an ensemble at a fifth of the budget, is for its report.
SHOWN = ("plain", "ensemble", "mc-dropout", "variational")
HERE = Path("runs/demo")


def find_demo() -> list[Path]:
    """The runs to show, where they are made already; an empty list where they are not."""
    if pad_networks.mnist_here():
        return pad_networks.complete(_cached("studio-mnist"))
    found = _complete(HERE) or _complete(_cached("studio-demo"))
    add_checks(found)
    return found


def make_demo(
    *,
    quick: bool = False,
    progress: bool = True,
    console: Console | None = None,
    announce: Callable[[str], None] | None = None,
) -> list[Path]:
    """Make the runs in the user's cache: a minute for the demo's, two for those on MNIST.

    Args:
        quick: a fraction of the training, to check that everything works.
        progress: show a progress bar (never when the output is not a terminal).
        console: where the demo prints.
        announce: called with a line before each training on MNIST.

    Returns:
        The run folders.

    """
    if pad_networks.mnist_here():
        return pad_networks.make(_cached("studio-mnist"), quick=quick, progress=progress, announce=announce)
    demo.run(_cached("studio-demo"), quick=quick, progress=progress, console=console)
    return _complete(_cached("studio-demo"))


def demo_runs(*, quick: bool = False) -> list[Path]:
    """The runs to show, found or made."""
    return find_demo() or make_demo(quick=quick)


def what_is_made() -> str:
    """What `make_demo` would train, in words."""
    if pad_networks.mnist_here():
        return "training four networks on MNIST's 28 x 28 digits; this happens once and takes two to four minutes"
    return "training the four networks of the demo on 8 x 8 digits; this happens once and takes a minute or two"


def add_checks(folders: list[Path]) -> None:
    """Fit the check for unknown inputs of demo runs that an earlier version made without one."""
    for folder in folders:
        if not (folder / UNKNOWN).is_file():
            fit_check(load_run(folder), folder, training_inputs(folder))


def _cached(name: str) -> Path:
    return cache() / name


def _complete(folder: Path) -> list[Path]:
    runs = [folder / name for name in SHOWN]
    return runs if all(map(pad_networks.is_trained, runs)) else []
