"""`--method auto`: from a recipe that names no method to one that does, by the table in `methods/auto_table.py`."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from bayesify import likelihoods, networks
from bayesify.functional.network import Network
from bayesify.likelihoods.text import likelihood_class, spec_text
from bayesify.methods.auto_table import Choice, Problem, choose, named_prior
from bayesify.methods.cards import CARDS, OF_OPTIMISATION
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.hmc.requirements import check_network
from bayesify.methods.method import Method
from bayesify.training.batches import TensorExamples
from bayesify.training.users_data import as_examples
from bayesify.workflows.auto.model import can_be_sampled, settled_likelihood
from bayesify.workflows.auto.time_limit import TooLittleTimeError, sampling_within, training_within
from bayesify.workflows.build import fit_settings, make_likelihood, make_method, make_network, with_defaults
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import OF_NETWORK, Recipe
from bayesify.workflows.table_defaults import FIRST_LAYER


@dataclass(frozen=True)
class Resolved:
    """A recipe with a method, the data prepared for it, the reason, and whether validation rows scale the widths."""

    recipe: Recipe
    data: PreparedData
    reason: str
    recalibrate: bool = False


def resolve(recipe: Recipe, data: PreparedData) -> Resolved:
    """Choose the method of a recipe, and its settings where the recipe leaves them open.

    Args:
        recipe: with method `auto`.
        data: its prepared data.

    Returns:
        The recipe with a method, its data (with a validation part where the choice stops early), and the reason.

    Raises:
        ValueError: no method takes all settings of the recipe, or the time is too short.

    Examples:
        >>> from bayesify.workflows.prepare import prepare_data
        >>> from bayesify.workflows.recipe import Recipe
        >>> recipe = Recipe(data="moons", units=(5,), activation="tanh")
        >>> resolve(recipe, prepare_data(recipe)).recipe.method
        'hmc'

    """
    began = clock.perf_counter()
    problem = _problem(recipe, data)
    given = _given(recipe)
    while True:
        choice = choose(problem, given)
        chosen = _with_choice(recipe, choice, data, made=problem.weights is None)
        prepared = data
        if choice.holdout and recipe.validation is None and round(choice.holdout * problem.rows) > 0:
            chosen = replace(chosen, validation=choice.holdout)
            prepared = prepare_data(chosen)
        if recipe.time is None:
            break
        try:
            chosen = _within(chosen, prepared, recipe.time - (clock.perf_counter() - began), given)
            break
        except TooLittleTimeError:
            if choice.method != "hmc" or problem.too_slow:
                raise
            problem = replace(problem, too_slow=True)
    return Resolved(chosen, prepared, choice.reason, choice.recalibrate)


def _problem(recipe: Recipe, data: PreparedData) -> Problem:
    x, y = data.train
    images = data.preparation.image is not None
    made = recipe.network == "mlp" and not images and all(getattr(recipe, name) is None for name in OF_NETWORK)
    likelihood = make_likelihood(recipe, data)
    weights, can_sample = None, can_be_sampled(likelihood)
    outputs = likelihood.width(likelihood.prepare(y))
    if not made:
        of_network = {name: getattr(recipe, name) for name in ("data", "network", "likelihood", *OF_NETWORK)}
        filled = with_defaults(Recipe(method="point", **of_network), data)
        make = make_network(filled, tuple(x.shape[1:]), outputs)
        with torch.random.fork_rng(devices=[]):
            module = make()
        weights = networks.count_weights(module)
        can_sample = can_sample and _samples(module, x[:2])
    return Problem(
        data.kind,
        rows=len(x),
        inputs=math.prod(x.shape[1:]),
        outputs=outputs,
        images=images,
        weights=weights,
        can_sample=can_sample,
        time=recipe.time,
    )


def _samples(module: torch.nn.Module, x: torch.Tensor) -> bool:
    try:
        check_network(Network(module), x)
    except (ValueError, TypeError, RuntimeError):
        return False
    return True


def _given(recipe: Recipe) -> list[str]:
    """Settings of the recipe that not every method takes."""
    names = (*OF_OPTIMISATION, "draws", "prior")
    changed = [name for name in names if getattr(recipe, name) != getattr(Recipe, name)]
    return [*changed, *recipe.options]


def _with_choice(recipe: Recipe, choice: Choice, data: PreparedData, *, made: bool) -> Recipe:
    """The recipe with the choice's settings, where the user gave none."""
    settings: dict[str, Any] = {}
    stops = choice.holdout > 0 or recipe.validation is not None
    for name, value in choice.settings.items():
        if name in {"patience", "keep"} and not stops:
            continue
        if recipe.setting(name) == getattr(Recipe, name, None):
            settings[name] = (value,) if name == "bayesian" else value
    if made:
        units = tuple(choice.network["units"])
        settings |= {"units": units, "layers": len(units), "activation": choice.network["activation"]}
        if recipe.prior is None and choice.prior is not None:
            settings["prior"] = named_prior(choice.prior, FIRST_LAYER, len(units))
    settings["likelihood"] = _likelihood_text(recipe, choice, data)
    base = replace(recipe, method=choice.method, time=None)
    return base.with_settings(settings)


def _likelihood_text(recipe: Recipe, choice: Choice, data: PreparedData) -> str | None:
    text = recipe.likelihood or "gaussian"
    if data.kind != "regression" or not issubclass(likelihood_class(text), likelihoods.Gaussian):
        return recipe.likelihood
    settled = settled_likelihood(text, choice, torch.as_tensor(data.train[1]))
    # Units come from the data again, when the likelihood is made.
    spec = {name: value for name, value in settled.spec().items() if name not in {"location", "scale", "initial"}}
    return spec_text(spec)


def _within(recipe: Recipe, data: PreparedData, seconds: float, given: list[str]) -> Recipe:
    """The recipe with a plan that ends in some seconds."""
    filled = with_defaults(recipe, data)
    card = CARDS[filled.method]
    if not card.optimised:
        if {"warm_up", "samples", "max_leapfrogs"} & set(given):
            return recipe
        method = make_method(filled, data).to(filled.device)
        assert isinstance(method, HMC)
        examples = as_examples(data.train, method.likelihood, method.network.dtype)
        assert isinstance(examples, TensorExamples)
        plan: Mapping[str, Any] = sampling_within(method, examples.to(method.position.device), seconds)
        return recipe.with_settings(plan)
    if "epochs" in given:
        return recipe
    settings = fit_settings(filled, len(data.train[0]))
    rest = {name: value for name, value in settings.items() if name not in {"epochs", "device"}}
    likelihood = likelihoods.from_spec(make_likelihood(filled, data).spec())
    examples = as_examples(data.train, likelihood, torch.float32)

    def make(members: int = 1) -> Method:
        return make_method(filled.with_settings({"members": members}) if "members" in card.options else filled, data)

    members = int(filled.setting("members") or 5) if "members" in card.options else 1
    within = training_within(make, examples, rest, seconds, members, settings["epochs"], filled.device)
    changed = {"epochs": within["epochs"]} | ({"members": within["members"]} if "members" in card.options else {})
    return recipe.with_settings(changed)
