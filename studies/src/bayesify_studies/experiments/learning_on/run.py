"""The parts of `bayesify reproduce learning-on` alone, in processes and within a time.

python -m bayesify_studies.experiments.learning_on.run --processes 6 --minutes 4 --device cuda --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.framework import timed_parts
from bayesify_studies.experiments.learning_on import parts
from bayesify_studies.experiments.learning_on.settings import FULL, QUICK


def _pilots(settings: timed_parts.Settings, device: str) -> dict[str, parts.Part]:
    return parts.pilots(settings, device)


def _scored(settings: timed_parts.Settings, told: timed_parts.Told, device: str) -> dict[str, parts.Part]:
    seeds = range(settings["seeds"])
    return parts.scored(settings, parts.chosen(parts.choices(settings, told)), seeds, device)


if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, _pilots, _scored)
