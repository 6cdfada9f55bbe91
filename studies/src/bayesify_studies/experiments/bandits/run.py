"""The parts of `bayesify reproduce bandits` alone, in processes and within a time.

python -m bayesify_studies.experiments.bandits.run --processes 6 --minutes 8 --out FOLDER
"""

from __future__ import annotations

from bayesify_studies.experiments.bandits import parts
from bayesify_studies.experiments.bandits.settings import FULL, QUICK
from bayesify_studies.experiments.framework import timed_parts


def _pilots(settings: timed_parts.Settings, _: str) -> dict[str, parts.Part]:
    return parts.pilots(settings)


def _scored(settings: timed_parts.Settings, told: timed_parts.Told, _: str) -> dict[str, parts.Part]:
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    return parts.scored(settings, parts.chosen(parts.choices(settings, told)), seeds)


if __name__ == "__main__":
    timed_parts.main(QUICK, FULL, _pilots, _scored)
