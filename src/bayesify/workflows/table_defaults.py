"""What a perceptron for a table has where a recipe leaves it open: width, prior, noise and the length of training."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from bayesify.methods.auto_table import Problem, named_prior, sampled
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import (
    LARGE_CLASSIFIER,
    MANY_ROWS,
    MANY_STEPS,
    enough_epochs,
    prior_for_tables,
    units_for_tables,
)
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import OF_NETWORK, Recipe

# The first layer of a perceptron, after the flattening.
FIRST_LAYER = 1


def table_settings(recipe: Recipe, data: PreparedData) -> dict[str, Any]:
    """The settings of a perceptron for a table, by the names of a recipe.

    Args:
        recipe: the settings that were chosen.
        data: the prepared data of the recipe.

    Returns:
        Settings for what the recipe leaves open.

    """
    if recipe.method == "hmc":
        return _sampled(recipe, data)
    rows, card = len(data.train[0]), CARDS[recipe.method]
    settings: dict[str, Any] = {"units": units_for_tables(data.kind, rows, recipe.method)}
    if data.kind != "regression":
        return settings
    prior = prior_for_tables(data.kind, rows, data.train[0].shape[1], recipe.method, recipe.units)
    if prior is not None:
        settings["prior"] = named_prior(prior, FIRST_LAYER, 1)
    if rows >= MANY_ROWS and card.optimised and not card.finds_rate:
        settings["epochs"] = enough_epochs(rows, max(recipe.batch_size, 1), MANY_STEPS)
    return settings


def last_layer_alone(recipe: Recipe, data: PreparedData) -> bool:
    """Whether Laplace's approximation is of the last layer, where the recipe names neither layers nor a prior.

    Over all layers of a large classifier it is far too unsure (`docs/methods/laplace.md`). `*` names all layers.

    Args:
        recipe: the settings that were chosen.
        data: the prepared data of the recipe.

    """
    open_choice = recipe.method == "laplace" and recipe.bayesian == ("all",) and recipe.prior is None
    if not open_choice or data.kind != "classification":
        return False
    x = data.train[0]
    if data.preparation.image is not None or recipe.network != "mlp":
        return True
    return _weights(recipe, x.shape[1], len(data.class_names)) > LARGE_CLASSIFIER


def weights_named(recipe: Recipe, data: PreparedData) -> int:
    """The weights of the perceptron whose widths a recipe names; 0 where it names none.

    Args:
        recipe: the settings that were chosen.
        data: the prepared data of the recipe.

    """
    return 0 if recipe.units is None else _weights(recipe, data.train[0].shape[1], len(data.class_names) or 1)


def _sampled(recipe: Recipe, data: PreparedData) -> dict[str, Any]:
    """HMC's network, prior, noise and plan: those of `Auto` where the recipe names no network."""
    x = data.train[0]
    outputs = len(data.class_names) or 1
    named = any(getattr(recipe, name) is not None for name in OF_NETWORK)
    weights = _weights(recipe, x.shape[1], outputs) if named else None
    choice = sampled(Problem(data.kind, rows=len(x), inputs=x.shape[1], outputs=outputs, weights=weights))
    settings = dict(choice.settings)
    if named:
        return {"units": units_for_tables(data.kind, len(x), recipe.method), **settings}
    units = tuple(choice.network["units"])
    settings |= {"units": units, "layers": len(units), "activation": choice.network["activation"]}
    if choice.prior is not None:
        settings["prior"] = named_prior(choice.prior, FIRST_LAYER, len(units))
    # Under another prior the noise of a network may be infinite where a chain starts.
    if choice.noise == "heteroscedastic" and recipe.prior is None:
        settings["likelihood"] = "gaussian:heteroscedastic"
    return settings


def _weights(recipe: Recipe, inputs: int, outputs: int) -> int:
    units = recipe.units or units_for_tables("classification", 0)
    hidden = units if len(units) > 1 else units * (recipe.layers or 1)
    return sum((before + 1) * after for before, after in pairwise([inputs, *hidden, outputs]))
