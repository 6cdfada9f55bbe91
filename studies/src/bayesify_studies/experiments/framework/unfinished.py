"""What of an experiment was not run in full, in a sentence that stands right below its verdict.

Sentences follow the page's JSON: settings that are shorter than those of the study, and parts that are missing. When
these are there, the sentence is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Results = Mapping[str, Any]
# The epochs of study D.
STUDY_D = 600
# The least epochs of study B's plain networks and dropout on MNIST.
STUDY_B = 50
# Classes of CIFAR-10.
_CLASSES = 10
# Methods that a page on CIFAR-10 should have.
_METHODS = 7


def unfinished(results: Results) -> str:
    """What was not run in full; nothing where all was, or where the JSON does not tell."""
    find = FINDERS.get(results["name"])
    try:
        missing = [] if find is None else find(results)
    except KeyError:
        missing = []
    return f"Not run in full: {'; '.join(missing)}." if missing else ""


def _study_d(results: Results) -> list[str]:
    epochs = results["settings"]["study_epochs"]
    short = [f"the study's training has {epochs} of its {STUDY_D} epochs"] if epochs < STUDY_D else []
    return short + _elbo(results)


def _elbo(results: Results, key: str = "elbo") -> list[str]:
    return [] if key in results["numbers"] else ["the ELBO of the page's networks was not recorded"]


def _uncertainty_kinds(results: Results) -> list[str]:
    found = results["numbers"].get("elbo")
    if not found:
        return _elbo({"numbers": {}})
    missing = [f"{size:,}" for size in results["settings"]["sizes"] if str(size) not in found]
    moons = f"on moons with {', '.join(missing)} examples and " if missing else ""
    return [f"the ELBO was not computed {moons}on digits"]


def _mnist_cnn(results: Results) -> list[str]:
    if "whole_kl" in results["numbers"]:
        return []
    return ["with the full KL there are only the validation scores below", *_elbo(results)]


def _pruning(results: Results) -> list[str]:
    why = "it is not known why magnitude beats signal-to-noise under one prior"
    return _study_d(results) + ([] if "why_magnitude" in results["numbers"] else [why])


def _study_b(results: Results) -> list[str]:
    kinds = results["settings"]["ways"]["study"]["kinds"]
    epochs = kinds["plain"][0]["epochs"]
    found = []
    if results["settings"]["data"] == "mnist" and epochs < STUDY_B:
        found.append(
            f"with the study's settings, plain networks and dropout have {epochs} epochs instead of {STUDY_B} to 100"
        )
    if "equal_care" not in results["numbers"]:
        tried = {kind: len(own) for kind, own in results["settings"]["ways"]["ours"]["kinds"].items()}
        found.append(
            f"{tried['plain']} settings were tried for plain networks, {tried['dropout']} for dropout and "
            f"{tried['mixture']} for the scale mixture; its two priors were chosen in an earlier search of 149 settings"
        )
    return found


def _unseen_class(results: Results) -> list[str]:
    study = results["settings"]["cifar"]["study"]
    found = []
    for kind, name, epochs in (("dropout", "MC dropout", 400), ("variational", "variational", 700)):
        own = study[kind]["epochs"]
        found += [f"with the study's settings, {name} has {own} of {epochs} epochs"] if own < epochs else []
    every = results["numbers"].get("every_class", {})
    withheld = every.get("classes", [])
    found += [] if "dropout_nll" in every else ["dropout's rate was chosen with one seed"]
    if not withheld:
        found.append("of CIFAR-10 only horses were withheld, and not every class in turn")
    elif every.get("examples"):
        found.append(
            f"only horses were withheld with all images; {_classes(len(withheld))} in turn with {every['examples']:,} "
            f"images and {every['epochs']} epochs"
        )
    return found + _elbo(results)


def _classes(count: int) -> str:
    return "every class" if count == _CLASSES else f"{count} of {_CLASSES} classes"


def _paper_grid(results: Results) -> list[str]:
    numbers = results["numbers"]
    if "winner_again" in numbers:
        return []
    found = ["the best setting is one network trained on 50,000 images, not five on all 60,000"]
    rate = numbers["best"]["learning_rate"]
    if rate == max(numbers["scores"]["learning_rate"]):
        found.append(f"its learning rate, {rate:g}, is the largest of the grid, and no larger one was tried")
    return found


def _mushroom(results: Results) -> list[str]:
    games = len(results["numbers"]["regret"]["variational"]["values"])
    ways = results["numbers"].get("where_lost", {}).get("ways", {})
    split = len(ways["page variational"]["share"]["values"]) if ways else 0
    return [f"the cost of exploring was measured in {split} of {games} games"] if split < games else []


def _cifar10(results: Results) -> list[str]:
    if results["preset"] == "full":
        return []
    full = results["numbers"]["full"]
    size = f"a ResNet-18 of width {full['width']} with {full['examples']:,} images and {full['epochs']} epochs"
    late = _told("Networks that were planned and not trained, for lack of time: ", "networks that were not trained: ")
    return [f"the full preset, {size}, needs a GPU and was not run", *late(results)]


def _shift(results: Results) -> list[str]:
    methods = results["numbers"]["cifar10"]
    if len(methods) >= _METHODS:
        return []
    small = " of full width; the narrow one has all" if results["numbers"].get("narrow") else ""
    return [f"{len(methods)} of {_METHODS} methods have a network for CIFAR-10{small}"]


def _told(beginning: str, words: str = "") -> Callable[[Results], list[str]]:
    """A shortfall of the page itself, by its beginning, in whose place `words` stand."""

    def find(results: Results) -> list[str]:
        own = [one for one in results.get("shortfalls", ()) if one.startswith(beginning)]
        return [words + one.removeprefix(beginning).rstrip(".") for one in own]

    return find


FINDERS: dict[str, Callable[[Results], list[str]]] = {
    "priors": _study_d,
    "kl-reweighting": _study_d,
    "normalisation": _study_d,
    "pruning": _pruning,
    "mnist-cnn": _mnist_cnn,
    "mnist-table": _study_b,
    "fashion-table": _study_b,
    "unseen-class": _unseen_class,
    "paper-grid": lambda results: _paper_grid(results) + _elbo(results, "winner_again"),
    "uncertainty-kinds": _uncertainty_kinds,
    **dict.fromkeys(("hyperpriors", "regression-bands", "transfer", "learning-on", "text"), _elbo),
    "mushroom": _mushroom,
    "cifar10": _cifar10,
    "shift": _shift,
    "hmc-cifar10": _told("Runs that were planned, but not computed for lack of time: ", "these runs are missing: "),
    "uci": _told("For lack of time, "),
}
