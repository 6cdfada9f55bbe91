"""The parts of `bayesify reproduce ood` alone, or of one of its problems, in processes and within a time.

python -m bayesify_studies.experiments.ood.run mnist --processes 14 --minutes 5 --device cuda --out FOLDER
"""

from __future__ import annotations

import sys

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.ood import parts
from bayesify_studies.experiments.ood.settings import FULL, QUICK


def _nothing(_: timed_parts.Settings, __: str) -> dict[str, parts.Part]:
    return {}


if __name__ == "__main__":
    wanted = [sys.argv.pop(1)] if sys.argv[1:2] and sys.argv[1] in FULL["problems"] else list(FULL["problems"])

    def _scored(settings: timed_parts.Settings, _: timed_parts.Told, device: str) -> dict[str, parts.Part]:
        kept = {name: own for name, own in settings["problems"].items() if name in wanted}
        return parts.cells({**settings, "problems": kept}, device)

    timed_parts.main(QUICK, FULL, _nothing, _scored)
