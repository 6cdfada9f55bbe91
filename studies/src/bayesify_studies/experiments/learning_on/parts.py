"""The sequences of the experiment: those that choose settings on permuted digits, and those that are scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bayesify_studies.experiments.learning_on.sequences import WAYS, sequences

Part = tuple[Any, ...]
KINDS = ("permuted", "split")
# Ways that have a choice; the plain ways have the network and the rate that were chosen for elastic weight
# consolidation.
CHOOSING = ("posterior", "ewc")
FIRST_CHOICE = 1000


def pilots(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """Sequences that choose, on training images that are kept aside: tries with as many units side by side."""
    parts: dict[str, Part] = {}
    for way in CHOOSING:
        for units, tries in _by_units(settings["tries"][way]).items():
            own = {key: [tried[key] for tried in tries] for key in tries[0] if key != "units"}
            given = {**settings, **own, "units": units, "choosing": True}
            seeds = [FIRST_CHOICE] * len(tries)
            parts[f"choose-{way}-{units}"] = (sequences, "permuted", way, seeds, given, device)
    return parts


def choices(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean accuracy after the last task, by way and by what was tried, as text."""
    found: dict[str, dict[str, float]] = {}
    for way in CHOOSING:
        found[way] = {}
        for units, tries in _by_units(settings["tries"][way]).items():
            each = networks(told[f"choose-{way}-{units}"])
            found[way] |= {json.dumps(tried): mean_accuracy(one) for tried, one in zip(tries, each, strict=True)}
    return found


def chosen(tried: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """What had the highest accuracy."""
    best: dict[str, dict[str, Any]] = {way: json.loads(max(own, key=own.__getitem__)) for way, own in tried.items()}
    return best | {"fine-tuned": best["ewc"], "joint": best["ewc"]}


def scored(
    settings: Mapping[str, Any], best: Mapping[str, Mapping[str, Any]], seeds: range, device: str
) -> dict[str, Part]:
    """Sequences that count, the most important first; all seeds side by side."""
    return {
        f"{kind}-{way}": (sequences, kind, way, list(seeds), {**settings, **best[way], "choosing": False}, device)
        for kind in KINDS
        for way in WAYS
    }


def networks(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The accuracies of every network by itself."""
    each: list[dict[str, Any]] = [{"accuracy": rows} for rows in told["accuracy"]]
    for one, rehearsed in zip(each, told.get("rehearsed", []), strict=False):
        one["rehearsed"] = rehearsed
    return each


def mean_accuracy(told: Mapping[str, Any], *, rehearsed: bool | None = None) -> float:
    """Over all tasks after the last one; rehearsed where there is such a prediction, unless asked."""
    kept = told.get("rehearsed") if rehearsed is not False else None
    row = kept or told["accuracy"][-1]
    return float(sum(row) / len(row))


def _by_units(tries: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for tried in tries:
        groups.setdefault(tried["units"], []).append(tried)
    return groups
