"""From a recipe and its prepared data to an untrained method: the likelihood, the network, the method."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify import likelihoods, networks
from bayesify.errors import BayesifyWarning
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.text import likelihood_class
from bayesify.methods import METHODS, Method
from bayesify.methods.cards import CARDS
from bayesify.methods.checks import check_trained_weights
from bayesify.methods.defaults import (
    LARGE_NETWORK,
    PRIOR_OF_LAST_LAYER,
    enough_epochs,
    needs_whole_draws,
    sampled_noise,
)
from bayesify.methods.variational.natural_gradient import LARGEST
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.table_defaults import last_layer_alone, table_settings, weights_named


def with_defaults(recipe: Recipe, data: PreparedData) -> Recipe:
    """Fill in the default settings for a kind of data and a method, where the recipe leaves them open.

    Tables are small: a posterior over many weights would not converge in the steps they allow. Their networks are
    narrower, their learning rates larger and falling, and their gradients have less variance.

    Args:
        recipe: the settings that were chosen.
        data: the prepared data of the recipe.

    Returns:
        The recipe with its defaults.

    """
    images = data.preparation.image is not None
    card = CARDS[recipe.method]
    settings = card.settings_for(data.kind, images=images or _is_large(recipe, data))
    if not images and recipe.network == "mlp":
        settings |= table_settings(recipe, data)
    if needs_whole_draws({name: recipe.setting(name) for name in ("family", "gradient", "bound")}):
        settings.pop("estimator", None)
    if recipe.dropout is not None or ":" in recipe.network:
        settings.pop("p", None)
    if last_layer_alone(recipe, data):
        recipe = replace(recipe, bayesian=("last_layer",), prior=PRIOR_OF_LAST_LAYER)
    missing = {name: value for name, value in settings.items() if value is not None and recipe.setting(name) is None}
    filled = recipe.with_settings(missing)
    if _by_natural_gradients(recipe, filled, data):
        # They have their own rate, which falls by itself.
        filled = replace(filled, learning_rate=recipe.learning_rate, schedule=recipe.schedule)
    return filled


def _is_large(recipe: Recipe, data: PreparedData) -> bool:
    """Whether a network for a table is so large that it has the defaults of images."""
    if ":" not in recipe.network:
        return recipe.network == "mlp" and weights_named(recipe, data) > LARGE_NETWORK
    outputs = len(data.class_names) or 1
    with torch.random.fork_rng(devices=[]):
        return networks.count_weights(make_network(recipe, tuple(data.train[0].shape[1:]), outputs)()) > LARGE_NETWORK


def _by_natural_gradients(recipe: Recipe, filled: Recipe, data: PreparedData) -> bool:
    """Whether `fit` trains by natural gradients: a small full-rank posterior, and no learning rate given."""
    if recipe.setting("family") != "full_rank" or recipe.learning_rate is not None:
        return False
    if recipe.optimizer is not None:
        return recipe.optimizer == "natural"
    likelihood = make_likelihood(filled, data)
    outputs = likelihood.width(likelihood.prepare(data.train[1]))
    network = make_network(filled, tuple(data.train[0].shape[1:]), outputs)()
    return sum(parameter.numel() for parameter in network.parameters()) <= LARGEST


def make_method(recipe: Recipe, data: PreparedData) -> Method:
    """Make the untrained method that a recipe describes.

    Args:
        recipe: with its defaults, as `with_defaults` returns it.
        data: the prepared data of the recipe; its notes are copied to the method.

    Returns:
        The method.

    Raises:
        ValueError: the settings contradict each other, the data or the network.

    """
    if ":" not in recipe.network:
        cure = "name a function that returns your trained network, --network module:factory"
        check_trained_weights(recipe.prior, f"the network {recipe.network!r}", cure)
    likelihood = make_likelihood(recipe, data)
    outputs = likelihood.width(likelihood.prepare(data.train[1]))
    card = CARDS[recipe.method]
    settings = {name: value for name, value in recipe.options.items() if name not in card.of_fit}
    settings |= {name: getattr(recipe, name) for name in ("start", "prior") if getattr(recipe, name) is not None}
    if "rho" in settings:
        settings["rho"] = _number_or_text(settings["rho"])
    if recipe.method == "mc-dropout" and ":" not in recipe.network:
        # A built-in network describes its own dropout layers.
        settings.pop("p", None)
    bayesian = recipe.bayesian[0] if len(recipe.bayesian) == 1 else list(recipe.bayesian)
    network = make_network(recipe, tuple(data.train[0].shape[1:]), outputs)
    method = METHODS[recipe.method](network, likelihood, bayesian=bayesian, seed=recipe.seed, **settings)
    method.notes = {**data.notes, "outputs": outputs}
    return method


def fit_settings(recipe: Recipe, examples: int) -> dict[str, Any]:
    """The keyword arguments of `fit` for the recipe's method."""
    card = CARDS[recipe.method]
    options = {name: recipe.options[name] for name in card.of_fit if name in recipe.options}
    if not card.optimised:
        return {"seed": recipe.seed, "device": recipe.device, **options}
    found = card.finds_rate and recipe.learning_rate is None
    # A method that finds its step size also chooses its batches and steps, where the recipe leaves them open.
    epochs = recipe.epochs if found else epochs_for(recipe, examples)
    batch_size = None if found and recipe.batch_size == type(recipe).batch_size else recipe.batch_size
    return {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": recipe.learning_rate,
        "optimizer": recipe.optimizer,
        "schedule": recipe.schedule or "constant",
        "draws": recipe.draws,
        "kl": recipe.kl,
        "patience": recipe.patience,
        "keep": recipe.keep,
        "precision": recipe.precision,
        "accumulate": recipe.accumulate,
        "clip_norm": recipe.clip_norm,
        "ema": recipe.ema,
        "on_nan": recipe.on_nan,
        "distributed": True if recipe.distributed is None else recipe.distributed,
        "seed": recipe.seed,
        "device": recipe.device,
        # Otherwise short epochs would spend most of their time writing checkpoints.
        "checkpoint_every": None if epochs is None else max(1, epochs // 100),
        **options,
    }


def epochs_for(recipe: Recipe, examples: int) -> int:
    """The epochs of a recipe, or else `enough_epochs`."""
    if recipe.epochs is not None:
        return recipe.epochs
    return enough_epochs(examples, max(recipe.batch_size, 1))


def make_likelihood(recipe: Recipe, prepared: PreparedData) -> Likelihood:
    """The likelihood of a recipe, or else the default for its data; classes and units come from the data."""
    name, _, _ = (recipe.likelihood or "").partition(":")
    if not name:
        name = "categorical" if prepared.kind == "classification" else "gaussian"
    text = recipe.likelihood or name
    logs = prepared.kind == "regression" and likelihood_class(text) is likelihoods.LogNormal
    location, scale = _units_of_logs(prepared) if logs else (prepared.target_mean, prepared.target_scale)
    if (name == "gaussian" and not recipe.likelihood) or (logs and ":" not in text):
        # A learned noise has no posterior to sample.
        text = f"{text}:{sampled_noise(scale) if recipe.method == 'hmc' else 'learned'}"
    likelihood = likelihoods.parse(text)
    known: dict[str, Any] = {"location": location, "scale": scale}
    known["classes"] = len(prepared.class_names) or None
    said = likelihood.spec().get("classes")
    if said not in (None, known["classes"]) and prepared.kind == "classification":
        raise ValueError(
            f"likelihood {recipe.likelihood} has {said} classes, but the data has {known['classes']}: write {name}"
        )
    spec = likelihood.spec() | {option: known[option] for option in likelihood.from_data}
    if recipe.class_weights is not None:
        spec["class_weights"] = _balanced_weights(recipe, likelihood, prepared)
    likelihood = likelihoods.from_spec(spec)
    if isinstance(likelihood, likelihoods.Ordinal):
        _check_order(prepared.class_names)
    if likelihood.kind != prepared.kind:
        raise ValueError(f"likelihood {name} is for {likelihood.kind}, but the data is for {prepared.kind}")
    return likelihood


def _units_of_logs(prepared: PreparedData) -> tuple[float, float]:
    """The mean and the standard deviation of the logarithms of the training targets."""
    logs = likelihoods.LogNormal().prepare(prepared.train[1]).double().log()
    return float(logs.mean()), float(logs.std(correction=0))


def _check_order(class_names: tuple[str, ...]) -> None:
    """Say in which order classes with names are taken: numbers are ordered by value, names by the alphabet."""
    try:
        [float(name) for name in class_names]
    except ValueError:
        listed = " < ".join(class_names)
        warnings.warn(
            f"ordinal takes the classes in this order: {listed}; rename them (1-low, 2-high) if it is another",
            BayesifyWarning,
            stacklevel=2,
        )


def _balanced_weights(recipe: Recipe, likelihood: Likelihood, prepared: PreparedData) -> list[float]:
    """A weight for each class that is inverse to its number of training examples; their mean over examples is one."""
    if prepared.kind != "classification" or "class_weights" not in likelihood.spec():
        raise ValueError(
            f"class_weights {recipe.class_weights} is for classes with the likelihood categorical, not for "
            f"{likelihood.name}: leave it out"
        )
    counts = prepared.train[1].bincount(minlength=len(prepared.class_names)).double()
    present = int((counts > 0).sum())
    return [len(prepared.train[1]) / (present * float(count)) if count else 0.0 for count in counts]


def make_network(recipe: Recipe, shape: tuple[int, ...], outputs: int) -> Callable[[], nn.Module]:
    """A function that makes the network of a recipe; torch draws its initial weights under the recipe's seed."""
    if ":" in recipe.network:
        make = user_factory(recipe.network, shape, outputs)
        _check_returns(recipe.network, make, shape)
        return make
    named: dict[str, Any] = {"activation": recipe.activation, "dropout": recipe.dropout}
    if recipe.method == "mc-dropout":
        rate = recipe.setting("p")
        if rate is not None and not 0 < rate < 1:
            raise ValueError(f"p must be a dropout rate between 0 and 1, got {rate!r}")
        named["dropout"] = rate or recipe.dropout or CARDS["mc-dropout"].settings_for("classification")["p"]
    if recipe.network == "cnn":
        named |= {"input_shape": list(shape), "preset": recipe.preset}
    else:
        units = recipe.units
        if units is not None and len(units) == 1:
            named |= {"units": units[0], "layers": recipe.layers}
        elif units is not None and recipe.layers not in {None, len(units)}:
            raise ValueError(f"units has {len(units)} widths but layers is {recipe.layers}: the two must agree")
        else:
            named |= {"units": units, "layers": recipe.layers}
        named["inputs"] = int(torch.tensor(shape).prod())
    spec = {"type": recipe.network, "outputs": outputs}
    spec |= {name: value for name, value in named.items() if value is not None}
    networks.build(spec)
    return lambda: networks.build(spec)


def user_factory(
    text: str, shape: tuple[int, ...] | None = None, outputs: int | None = None
) -> Callable[[], nn.Module]:
    """A function that makes the user's network, from `module:factory`.

    The module is imported from the current folder or from the installed packages. The factory is called with those of
    `inputs` (a number for a table, else the shape), `input_shape` and `outputs` that it has as parameters.
    """
    module_name, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as problem:
        raise ValueError(
            f"network {text}: there is no module {problem.name!r} in the current folder or among installed packages"
        ) from None
    except AttributeError:
        raise ValueError(f"network {text}: {module_name} has no {name!r}") from None
    except Exception as problem:
        raise ValueError(f"network {text}: importing {module_name} failed: {problem}") from problem
    if not callable(factory):
        raise TypeError(f"network {text} must be a function that makes a torch.nn.Module, got {factory!r}")
    arguments = _factory_arguments(text, factory, shape, outputs)

    def make() -> nn.Module:
        try:
            network = factory(**arguments)
        except Exception as problem:
            raise ValueError(f"network {text} cannot be made: {problem}") from problem
        if not isinstance(network, nn.Module):
            raise TypeError(f"network {text} must make a torch.nn.Module, got {type(network).__name__}")
        return network

    return make


def _factory_arguments(
    text: str, factory: Callable[..., Any], shape: tuple[int, ...] | None, outputs: int | None
) -> dict[str, Any]:
    """The arguments of a factory; one that requires any other parameter is refused."""
    inputs = shape[0] if shape is not None and len(shape) == 1 else shape
    known = {"inputs": inputs, "outputs": outputs, "input_shape": shape}
    parameters = inspect.signature(factory).parameters
    arguments = {key: value for key, value in known.items() if key in parameters and value is not None}
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for key, parameter in parameters.items():
        if key not in arguments and parameter.default is parameter.empty and parameter.kind not in collecting:
            reason = "this run does not record it" if key in known else "a factory gets only inputs and outputs"
            raise ValueError(f"network {text} needs {key!r}, but {reason}: give {key!r} a default value")
    return arguments


def _check_returns(text: str, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Refuse a network with several outputs: only Python (`output=`) can choose among them."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = make().eval()
        try:
            result = network(torch.zeros(2, *shape))
        except Exception:  # noqa: BLE001 -- fit reports it in full, with the shapes of the data
            return
    if not isinstance(result, torch.Tensor):
        raise TypeError(
            f"network {text} returns {type(result).__name__}, not a tensor: make its forward return one tensor, or "
            "fit it in Python with output="
        )


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
