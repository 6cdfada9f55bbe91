"""The parts of one of these experiments alone, in processes and within a time.

python -m bayesify_studies.experiments.parts_run jackknife --processes 3 --minutes 8 --out FOLDER
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from bayesify.errors import choose
from bayesify_studies.experiments.framework import timed_parts

# By experiment: the function that makes its parts from the settings.
MAKERS = {
    **dict.fromkeys(("time-series", "input-shift", "jackknife", "recalibrated-numbers"), "parts"),
    "active-learning": "chains",
}


def _nothing(_: timed_parts.Settings, __: str) -> dict[str, timed_parts.Part]:
    return {}


if __name__ == "__main__":
    name = choose("experiment", sys.argv.pop(1) if len(sys.argv) > 1 else "", MAKERS)
    module: Any = import_module(f"bayesify_studies.experiments.{name.replace('-', '_')}")

    def _scored(settings: timed_parts.Settings, _: timed_parts.Told, __: str) -> dict[str, timed_parts.Part]:
        found: dict[str, timed_parts.Part] = getattr(module, MAKERS[name])(settings)
        return found

    timed_parts.main(module.EXPERIMENT.quick, module.EXPERIMENT.full, _nothing, _scored)
