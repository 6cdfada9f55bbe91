"""The parts of `bayesify reproduce active-learning` alone, in processes and within a time.

python -m bayesify_studies.experiments.active_learning_run --processes 14 --minutes 8 --out FOLDER
"""

from __future__ import annotations

from typing import Any

from bayesify_studies.experiments.active_learning import EXPERIMENT, chains
from bayesify_studies.experiments.framework import timed_parts


def _nothing(_: timed_parts.Settings, __: str) -> dict[str, tuple[Any, ...]]:
    return {}


def _scored(settings: timed_parts.Settings, _: timed_parts.Told, __: str) -> dict[str, tuple[Any, ...]]:
    return chains(settings)


if __name__ == "__main__":
    timed_parts.main(EXPERIMENT.quick, EXPERIMENT.full, _nothing, _scored)
