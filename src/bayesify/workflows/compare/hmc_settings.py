"""The methods, data sets and settings of the comparison with HMC in `against_hmc.py`.

Each setting was chosen once, on seeds that are not scored (100 and up), by the method's loss and its score on held-out
data, never by its distance to HMC.
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
    """A data set of the experiment: how it is made or subsampled, its model, and the settings of single methods."""

    options: Mapping[str, float]
    model: Mapping[str, Any]
    by_method: Mapping[str, Mapping[str, Any]]
    train: int | None = None
    test: int | None = None


_PLANE = {"units": (5, 5), "activation": "tanh"}
_DIGITS = {"units": (50,), "layers": 1, "activation": "tanh"}
_LARGE: dict[str, dict[str, Any]] = {"hmc": {"chains": 16, "samples": 200}, "laplace": {"structure": "kronecker"}}
# Noise of a fifth of the targets' spread makes the loss steep: methods with plain gradients need lower rates.
_STEEP = {"swag": {"learning_rate": 1e-3}, "sgld": {"learning_rate": 4e-3}, "sghmc": {"learning_rate": 2e-3}}
# The noise of moons and circles is inferred from study E, whose best accuracies are near optimal with it.
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


# Steps, not epochs, so that small data gets as many.
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
    _candidate("ivon", {"hessian_init": 1.0, "learning_rate": 0.1, "steps": 3000}),
    _candidate("laplace", {"structure": "full", "prior_precision": "fixed", "learning_rate": 0.01, "steps": 2000}),
    _candidate(
        "swag",
        {"optimizer": "sgd:momentum=0.9", "learning_rate": 0.05, "schedule": "constant", "steps": 3000},
    ),
    _candidate("sgld", {"chains": 4, "samples": 100, "learning_rate": 0.05, "steps": 6000}),
    _candidate("sghmc", {"chains": 4, "samples": 100, "learning_rate": 0.02, "steps": 6000}),
    _candidate("hmc", {"chains": 32, "warm_up": 300, "samples": 600}),
)


def recipe_for(candidate: RecipeCandidate, settings: Mapping[str, Any]) -> Recipe:
    """The recipe of a method in this experiment: its settings and those of the data, overridden by `settings`."""
    data = str(settings.get("data", "moons"))
    setup = SETUPS.get(data)
    card = CARDS[candidate.method]
    defaults = {name: value for name, value in candidate.settings.items() if name != "steps"}
    if setup is not None:
        defaults |= {**setup.model, **setup.by_method.get(candidate.method, {})}
    taken = {name: value for name, value in settings.items() if card.takes(name)}
    if "learning_rate" in defaults and "schedule" not in defaults and not card.collects:
        defaults["schedule"] = "cosine"
    if candidate.slug != candidate.method:
        # A variant keeps the settings that define it.
        fixed = set(candidate.settings) - set(OF_OPTIMISATION)
        taken = {name: value for name, value in taken.items() if name not in fixed}
    return make_recipe({}, {"prior": "normal:1", "data": data, **defaults, **taken, "method": candidate.method})
