"""Who is compared with HMC, on what data, and with which settings: the choices of the experiment in `against`.

Each was made once, on seeds that are not scored (100 and up), from the method's own loss and its score on held-out
data, never from its distance to HMC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesify.workflows.recipe import OF_METHOD, OF_OPTIMISATION, WITH_DRAWS, Recipe, make_recipe

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
class Entrant:
    """A method that is compared: its label, its folder and the settings of its recipe."""

    label: str
    slug: str
    method: str
    settings: Mapping[str, Any]


# Steps are counted, not epochs, so that small data get as many.
ENTRANTS: tuple[Entrant, ...] = (
    Entrant("Point estimate", "point", "point", {"learning_rate": 0.01, "steps": 2000}),
    Entrant("Ensemble of 5", "ensemble", "ensemble", {"members": 5, "learning_rate": 0.01, "steps": 2000}),
    Entrant("MC dropout", "mc-dropout", "mc-dropout", {"p": 0.1, "learning_rate": 0.01, "steps": 3000}),
    Entrant("Variational", "variational", "variational", {"estimator": "local", "learning_rate": 0.01, "steps": 5000}),
    Entrant(
        "Variational, full rank",
        "variational-full-rank",
        "variational",
        {"family": "full_rank", "estimator": "weight", "rho": "-3", "learning_rate": 0.01, "steps": 5000},
    ),
    Entrant("IVON", "ivon", "ivon", {"learning_rate": 0.1, "steps": 3000}),
    Entrant("Laplace approximation", "laplace", "laplace", {"structure": "full", "learning_rate": 0.01, "steps": 2000}),
    Entrant(
        "SWAG",
        "swag",
        "swag",
        {"optimizer": "sgd:momentum=0.9", "learning_rate": 0.05, "schedule": "constant", "steps": 3000},
    ),
    Entrant("SGLD", "sgld", "sgld", {"chains": 4, "samples": 100, "learning_rate": 0.05, "steps": 6000}),
    Entrant("SGHMC", "sghmc", "sghmc", {"chains": 4, "samples": 100, "learning_rate": 0.02, "steps": 6000}),
    Entrant("HMC", "hmc", "hmc", {"chains": 32, "warm_up": 300, "samples": 600}),
)


def recipe_for(one: Entrant, given: Mapping[str, Any]) -> Recipe:
    """The recipe of a method in this experiment: its settings, those of the data, and over them what was given."""
    data = str(given.get("data", "moons"))
    setup = SETUPS.get(data)
    own = {name: value for name, value in one.settings.items() if name != "steps"}
    if setup is not None:
        own |= {**setup.model, **setup.own.get(one.method, {})}
    said = {name: value for name, value in given.items() if takes(one.method, name)}
    if "learning_rate" in own and "schedule" not in own and one.method not in {"sgld", "sghmc"}:
        own["schedule"] = "cosine"
    if one.slug != one.method:
        # A variant is what its own settings make it.
        said = {name: value for name, value in said.items() if name not in one.settings or name in OF_OPTIMISATION}
    return make_recipe({}, {"prior": "normal:1", "data": data, **own, **said, "method": one.method})


def takes(method: str, setting: str) -> bool:
    if setting in OF_METHOD:
        return method in OF_METHOD[setting]
    if method == REFERENCE and setting in OF_OPTIMISATION:
        return False
    if setting == "draws":
        return method in WITH_DRAWS
    # What these collect comes at the end of their plan.
    if setting in {"patience", "keep"} and method in {"swag", "sgld", "sghmc"}:
        return False
    # The updates of these are their own, and SWAG's widths come from its optimiser.
    return not (setting == "optimizer" and method in {"ivon", "sgld", "sghmc", "swag"})
