"""The runs that the studio shows when it is given none: the demo's, found or made."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from bayesify.data.locations import cache
from bayesify.runs import CONFIG, MODEL
from bayesify.workflows import demo

# The fifth contender, an ensemble at a fifth of the budget, makes a point of the demo's report, not of a page.
SHOWN = ("plain", "ensemble", "mc-dropout", "variational")
HERE = Path("runs/demo")


def find_demo() -> list[Path]:
    """The demo's runs, from `runs/demo` or from the user's cache; none where there are none."""
    return _complete(HERE) or _complete(_cached())


def make_demo(*, quick: bool = False, progress: bool = True, console: Console | None = None) -> list[Path]:
    """Make the demo's runs in the user's cache (a minute)."""
    demo.run(_cached(), quick=quick, progress=progress, console=console)
    return _complete(_cached())


def demo_runs(*, quick: bool = False) -> list[Path]:
    """The demo's runs, found or made."""
    return find_demo() or make_demo(quick=quick)


def _cached() -> Path:
    return cache() / "studio-demo"


def _complete(folder: Path) -> list[Path]:
    found = [folder / name for name in SHOWN]
    return found if all(map(_whole, found)) else []


def _whole(run: Path) -> bool:
    try:
        config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(config.get("complete", True)) and (run / MODEL).is_file()
