"""The sequences of the experiment: those that choose settings on permuted digits, and those that are scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bayesify_studies.experiments.learning_on.sequences import WAYS, sequence

Part = tuple[Any, ...]
KINDS = ("permuted", "split")
# Ways that have a choice; the plain ways have the size of network that was chosen for elastic weight consolidation.
CHOOSING = ("posterior", "ewc")
FIRST_CHOICE = 1000


def pilots(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """Sequences that choose, on training examples that are kept aside."""
    return {
        f"choose-{way}-{number}": (
            sequence,
            "permuted",
            way,
            FIRST_CHOICE,
            {**settings, **tried, "choosing": True},
            device,
        )
        for way in CHOOSING
        for number, tried in enumerate(settings["tries"][way])
    }


def choices(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean accuracy after the last task, by way and by what was tried, as text."""
    return {
        way: {
            json.dumps(tried): mean_accuracy(told[f"choose-{way}-{number}"])
            for number, tried in enumerate(settings["tries"][way])
        }
        for way in CHOOSING
    }


def chosen(tried: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """What had the highest accuracy."""
    best: dict[str, dict[str, Any]] = {way: json.loads(max(own, key=own.__getitem__)) for way, own in tried.items()}
    return best | {"fine-tuned": best["ewc"], "joint": best["ewc"]}


def scored(
    settings: Mapping[str, Any], best: Mapping[str, Mapping[str, Any]], seeds: range, device: str
) -> dict[str, Part]:
    """Sequences that count, the most important first."""
    return {
        f"{kind}-{way}-{seed}": (sequence, kind, way, seed, {**settings, **best[way], "choosing": False}, device)
        for kind in KINDS
        for seed in seeds
        for way in WAYS
    }


def mean_accuracy(told: Mapping[str, Any], *, rehearsed: bool | None = None) -> float:
    """Over all tasks after the last one; rehearsed where there is such a prediction, unless asked."""
    kept = told.get("rehearsed") if rehearsed is not False else None
    row = kept or told["accuracy"][-1]
    return float(sum(row) / len(row))
