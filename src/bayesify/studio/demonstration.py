"""The runs that the studio shows when it is given none: the demo's, found or made."""

from __future__ import annotations

import json
from pathlib import Path

from bayesify import demo
from bayesify.data.places import cache
from bayesify.runs import CONFIG, MODEL

# The fifth contender, an ensemble at a fifth of the budget, makes a point of the demo's report, not of a page.
SHOWN = ("plain", "ensemble", "mc-dropout", "variational")
HERE = Path("runs/demo")


def demo_runs(*, quick: bool = False) -> list[Path]:
    """The demo's runs: from `runs/demo`, else from the user's cache, where they are made the first time (a minute)."""
    kept = cache() / "studio-demo"
    for folder in (HERE, kept):
        if found := _complete(folder):
            return found
    demo.run(kept, quick=quick)
    return _complete(kept)


def _complete(folder: Path) -> list[Path]:
    found = [folder / name for name in SHOWN]
    return found if all(map(_whole, found)) else []


def _whole(run: Path) -> bool:
    try:
        config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(config.get("complete", True)) and (run / MODEL).is_file()
