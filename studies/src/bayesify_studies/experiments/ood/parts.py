"""The cells of the experiment: every problem, seed and method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify_studies.experiments.ood.cells import cell

Part = tuple[Any, ...]


def part_name(problem: str, method: str, seed: int) -> str:
    """The name of a cell's file."""
    return f"{problem}-{method}-{seed}"


def cells(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """Seed by seed, so that an interrupted experiment has whole comparisons."""
    return {
        part_name(problem, method, seed): (cell, own, method, seed, settings, device if problem == "mnist" else "cpu")
        for problem, own in settings["problems"].items()
        for seed in range(own["seeds"])
        for method in settings["methods"]
    }
