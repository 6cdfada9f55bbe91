"""The parts of `bayesify reproduce ood` alone, in processes and within a time.

python -m bayesify_studies.experiments.ood.run --processes 14 --minutes 5 --device cuda --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.ood import parts
from bayesify_studies.experiments.ood.settings import FULL, QUICK


def _nothing(_: timed_parts.Settings, __: str) -> dict[str, parts.Part]:
    return {}


def _scored(settings: timed_parts.Settings, _: timed_parts.Told, device: str) -> dict[str, parts.Part]:
    return parts.cells(settings, device)


if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, _nothing, _scored)
