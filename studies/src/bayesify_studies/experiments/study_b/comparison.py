"""What study B's tables compare: what was published, and our test errors over seeds and over images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, over_images, paired, settled

BY = {"mean": "mean weights", "draws": "draws"}


@dataclass(frozen=True)
class Published:
    """Test errors as shares, by units: study B's own, the paper's by kind, and what we hold ourselves to.

    The target without a number of units is of the width that errs least on validation.
    """

    study: Mapping[int, float]
    longer: Mapping[int, float] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    paper: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    targets: Mapping[int | None, float] = field(default_factory=dict)


def errors_of(part: Mapping[str, Any], by: str) -> dict[str, Any]:
    """The test error over seeds."""
    return estimate([one["error"] for one in part[by]["seeds"]])


def usual(part: Mapping[str, Any]) -> str:
    """How a network answers where nothing else is said: by draws, if it has any."""
    return "draws" if "draws" in part else "mean"


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The first one's test error less the second's, over seeds and over images; its sign where both have the same."""
    ours, theirs = ([one["error"] for one in part[usual(part)]["seeds"]] for part in (first, second))
    by_seed, by_image = paired(ours, theirs), over_images([_shares(first)], [_shares(second)])
    signs = {settled(by_seed), settled(by_image)}
    return {"over_seeds": by_seed, "over_images": by_image, "sign": signs.pop() if len(signs) == 1 else 0}


def verdict(found: Mapping[str, Any]) -> str:
    """A comparison in words."""
    return {-1: "errs less", 1: "errs more", 0: "no significant difference"}[found["sign"]]


def share(told: float | None) -> str:
    """A published error."""
    return "not published" if told is None else f"{100 * told:.2f}%"


def _shares(part: Mapping[str, Any]) -> list[float]:
    """Of each test image, the share of seeds that misread it."""
    found, answered = [0.0] * part["tested"], part[usual(part)]
    for place, count in answered["wrong"].items():
        found[int(place)] = count / len(answered["seeds"])
    return found
