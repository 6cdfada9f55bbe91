"""The search that "tuned" stands for: six settings of each method, the defaults among them, judged by validation NLL.

The first seed's training rows alone take part: four fifths to fit, one fifth to judge. The best is then fitted to all
training rows and scored on the test rows, as the defaults are. Nothing else was tried.
"""

from __future__ import annotations

from typing import Any

from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import (
    FEWEST_STEPS,
    MANY_ROWS,
    MANY_STEPS,
    default_settings,
    enough_epochs,
    units_for_tables,
)
from bayesify_studies.experiments.defaults.problems import Problem

DEFAULT = "default"
TRIES = (DEFAULT, "rate / 3", "rate x 3", "wide", "long", "other model")
_BATCH = 128


def settings_of(name: str, problem: Problem, method: str, rows: int) -> dict[str, Any] | None:
    """The settings of a try, over the defaults.

    Args:
        name: one of `TRIES`.
        problem: the problem.
        method: the name of the method.
        rows: training examples.

    Returns:
        Settings by the names of a recipe; None where the method has no such setting.

    """
    card = CARDS[method]
    if name == DEFAULT:
        return {}
    if name.startswith("rate"):
        rate = (
            default_settings(method, problem.kind, images=problem.images)["learning_rate"] if card.optimised else None
        )
        return None if rate is None else {"learning_rate": rate / 3 if "/" in name else 3 * rate}
    if name == "wide":
        return None if problem.images else _wide(problem, method, rows)
    if name == "long":
        # SGLD and SGHMC choose their own steps, and HMC has none.
        finds = not card.optimised or card.finds_rate
        usual = MANY_STEPS if problem.kind == "regression" and rows >= MANY_ROWS else FEWEST_STEPS
        return None if finds else {"epochs": 3 * enough_epochs(rows, _BATCH, usual)}
    return _other_model(problem, method)


def _wide(problem: Problem, method: str, rows: int) -> dict[str, Any]:
    """Two hidden layers of tanh for HMC, as Auto has; else one that is several times wider."""
    if method == "hmc":
        return {"units": (30, 30), "layers": 2, "activation": "tanh"}
    return {"units": (4 * units_for_tables(problem.kind, rows, method)[0],)}


def _other_model(problem: Problem, method: str) -> dict[str, Any] | None:
    """Another noise for numbers; another prior or dropout rate for classes."""
    if problem.kind == "regression":
        return {"likelihood": "gaussian:heteroscedastic"}
    if method == "mc-dropout":
        return {"p": 0.05}
    if CARDS[method].prior:
        return {"prior": "normal:fan_in"}
    if method in {"point", "ensemble"}:
        return {"prior": "normal:1"}
    return None if problem.images else {"units": (20,)}
