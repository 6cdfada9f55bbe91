"""What is compared with HMC, on what data, and with which settings: the choices of the experiment in `against_hmc`.

Each was made once, on seeds that are not scored (100 and up), from the method's own loss and its score on held-out
data, never from its distance to HMC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesify.methods.cards import CARDS, OF_OPTIMISATION
from bayesify.workflows.recipe import Recipe, make_recipe

REFERENCE = "hmc"


@dataclass(frozen=True)
class Setup:
    """A data set as this experiment uses it: how it is generated or cut, its model, and what single methods need."""

    options: Mapping[str, float]
    model: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]
    train: int | None = None
    test: int | None = None


_PLANE = {"units": (5, 5), "activation": "tanh"}
_DIGITS = {"units": (50,), "layers": 1, "activation": "tanh"}
_LARGE: dict[str, dict[str, Any]] = {"hmc": {"chains": 16, "samples": 200}, "laplace": {"structure": "kronecker"}}
# Noise of a fifth of the targets' spread makes the loss of a number steep: rates of plain gradients are lower.
_STEEP = {"swag": {"learning_rate": 1e-3}, "sgld": {"learning_rate": 4e-3}, "sghmc": {"learning_rate": 2e-3}}
# The noise of the two planes is what study E must have used (its best accuracies are near optimal there).
SETUPS: dict[str, Setup] = {
    "moons": Setup({"n": 1200, "test": 1000, "noise": 0.4}, _PLANE, {}),
    "circles": Setup({"n": 1200, "test": 1000, "noise": 0.15, "factor": 0.8}, _PLANE, {}),
    "gap": Setup(
        {"n": 200, "test": 100},
        {"units": (20,), "activation": "tanh", "layers": 1, "likelihood": "gaussian:0.1"},
        _STEEP,
    ),
    "mnist": Setup({}, _DIGITS, _LARGE, train=300, test=1000),
    "fashion-mnist": Setup({}, _DIGITS, _LARGE, train=300, test=1000),
}


@dataclass(frozen=True)
class RecipeCandidate:
    """A method that is compared: its label, its folder and the settings of its recipe."""

    label: str
    slug: str
    method: str
    settings: Mapping[str, Any]


def _candidate(method: str, settings: Mapping[str, Any], variant: str = "") -> RecipeCandidate:
    card = CARDS[method]
    label, slug = (f"{card.title}, {variant}", f"{method}-{variant.replace(' ', '-')}") if variant else ("", method)
    return RecipeCandidate(label or card.label or card.title, slug, method, settings)


# Steps are counted, not epochs, so that small data get as many.
CANDIDATES: tuple[RecipeCandidate, ...] = (
    _candidate("point", {"learning_rate": 0.01, "steps": 2000}),
    _candidate("ensemble", {"members": 5, "learning_rate": 0.01, "steps": 2000}),
    _candidate("mc-dropout", {"p": 0.1, "learning_rate": 0.01, "steps": 3000}),
    _candidate("variational", {"estimator": "local", "learning_rate": 0.01, "steps": 5000}),
    _candidate(
        "variational",
        {"family": "full_rank", "estimator": "weight", "rho": "-3", "learning_rate": 0.01, "steps": 5000},
        "full rank",
    ),
    _candidate("ivon", {"learning_rate": 0.1, "steps": 3000}),
    _candidate("laplace", {"structure": "full", "learning_rate": 0.01, "steps": 2000}),
    _candidate(
        "swag",
        {"optimizer": "sgd:momentum=0.9", "learning_rate": 0.05, "schedule": "constant", "steps": 3000},
    ),
    _candidate("sgld", {"chains": 4, "samples": 100, "learning_rate": 0.05, "steps": 6000}),
    _candidate("sghmc", {"chains": 4, "samples": 100, "learning_rate": 0.02, "steps": 6000}),
    _candidate("hmc", {"chains": 32, "warm_up": 300, "samples": 600}),
)


def recipe_for(candidate: RecipeCandidate, settings: Mapping[str, Any]) -> Recipe:
    """The recipe of a method in this experiment: its settings, those of the data, and over them those given."""
    data = str(settings.get("data", "moons"))
    setup = SETUPS.get(data)
    card = CARDS[candidate.method]
    usual = {name: value for name, value in candidate.settings.items() if name != "steps"}
    if setup is not None:
        usual |= {**setup.model, **setup.own.get(candidate.method, {})}
    taken = {name: value for name, value in settings.items() if card.takes(name)}
    if "learning_rate" in usual and "schedule" not in usual and not card.collects:
        usual["schedule"] = "cosine"
    if candidate.slug != candidate.method:
        # A variant is what its own settings make it.
        own_settings = set(candidate.settings) - set(OF_OPTIMISATION)
        taken = {name: value for name, value in taken.items() if name not in own_settings}
    return make_recipe({}, {"prior": "normal:1", "data": data, **usual, **taken, "method": candidate.method})
