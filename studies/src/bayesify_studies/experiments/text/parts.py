"""The parts of the experiment: choices on validation sentences, then every method with every seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify_studies.experiments.text.fits import AS_PLAIN, CHOSEN, MEMBERS, METHODS, scored, settings_of

Part = tuple[Any, ...]
# A choice is made on a seed that is not tested.
CHOICE = 1000


def choices(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """Every setting of every method that has its own, on validation sentences."""
    return {
        f"choose-{method}-{number}": (scored, method, CHOICE, setting, settings, device, "validation")
        for method in CHOSEN
        for number, setting in enumerate(settings_of(method)[: settings["tried"]])
    }


def chosen(told: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The setting of each method with the least NLL on validation sentences; methods whose choices all failed lack."""
    found = {}
    for method in CHOSEN:
        own = {
            int(name.rsplit("-", 1)[1]): one["nll"]
            for name, one in told.items()
            if name.rsplit("-", 1)[0] == f"choose-{method}" and "nll" in one
        }
        if own:
            found[method] = settings_of(method)[min(own, key=own.__getitem__)]
    return found | {method: found["plain"] for method in AS_PLAIN if "plain" in found}


def tests(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, Part]:
    """Every method at its setting, seed by seed; the plain network's part has the Laplace approximation too."""
    best = chosen(told)
    return {
        f"{method}-{seed}": (scored, method, seed, best[method], settings, device, "test")
        for seed in range(settings["seeds"])
        for method in METHODS
        if method != "laplace" and method in best
    }


def networks_of(part: Part) -> float:
    """The work of a part, in networks to train."""
    return float(MEMBERS if part[1] == "ensemble" else 1)
