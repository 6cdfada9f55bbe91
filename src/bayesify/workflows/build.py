"""From a recipe and its prepared to an untrained method: the likelihood, the network, the method."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify import likelihoods, networks, priors
from bayesify.likelihoods import Likelihood
from bayesify.methods import METHODS, Method
from bayesify.methods.cards import CARDS
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import Recipe

# Hidden units for tables, where the recipe does not say.
UNITS_FOR_TABLES = {"classification": (50,), "regression": (10,)}
# A few hundred examples make a handful of steps per epoch: small data needs more epochs to be learnt at all.
FEWEST_EPOCHS, FEWEST_STEPS = 10, 2000


def with_defaults(recipe: Recipe, data: PreparedData) -> Recipe:
    """The recipe with the defaults for its kind of data and method, wherever it does not say.

    Tables are small: a posterior over many weights would not converge in the steps they allow, so their networks are
    narrower, their steps larger and falling, and their gradients have less variance.
    """
    images = data.preparation.image is not None
    card = CARDS[recipe.method]
    settings = card.settings_for(data.kind, images=images)
    if not images and recipe.network == "mlp":
        settings["units"] = UNITS_FOR_TABLES[data.kind]
    weights_alone = recipe.setting("family") not in {None, "mean_field"} or recipe.setting("gradient")
    if weights_alone or recipe.setting("bound"):
        settings.pop("estimator", None)
    if recipe.dropout is not None or ":" in recipe.network:
        settings.pop("p", None)
    missing = {name: value for name, value in settings.items() if value is not None and recipe.setting(name) is None}
    return recipe.with_settings(missing)


def make_method(recipe: Recipe, data: PreparedData) -> Method:
    """The method that a recipe with its defaults describes, not trained yet, with the notes of its data."""
    _check_trained_weights(recipe)
    likelihood = make_likelihood(recipe, data)
    outputs = likelihood.width(likelihood.prepare(data.train[1]))
    card = CARDS[recipe.method]
    settings = {name: value for name, value in recipe.options.items() if name not in card.of_fit}
    settings |= {name: getattr(recipe, name) for name in ("start", "prior") if getattr(recipe, name) is not None}
    if "rho" in settings:
        settings["rho"] = _number_or_text(settings["rho"])
    if recipe.method == "mc-dropout" and ":" not in recipe.network:
        # A network of ours carries its dropout in its own description.
        settings.pop("p", None)
    bayesian = recipe.bayesian[0] if recipe.bayesian in {("all",), ("last_layer",)} else list(recipe.bayesian)
    network = make_network(recipe, tuple(data.train[0].shape[1:]), outputs)
    method = METHODS[recipe.method](network, likelihood, bayesian=bayesian, seed=recipe.seed, **settings)
    method.notes = {**data.notes, "outputs": outputs}
    return method


def fit_settings(recipe: Recipe, examples: int) -> dict[str, Any]:
    """What `fit` is told, in the words of the recipe's method."""
    card = CARDS[recipe.method]
    own_settings = {name: recipe.options[name] for name in card.of_fit if name in recipe.options}
    if not card.optimised:
        return {"seed": recipe.seed, "device": recipe.device, **own_settings}
    epochs = epochs_for(recipe, examples)
    return {
        "epochs": epochs,
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate or 1e-3,
        "optimizer": recipe.optimizer,
        "schedule": recipe.schedule or "constant",
        "draws": recipe.draws,
        "kl": recipe.kl,
        "patience": recipe.patience,
        "keep": recipe.keep,
        "seed": recipe.seed,
        "device": recipe.device,
        # Short epochs would otherwise spend their time on the disk.
        "checkpoint_every": max(1, epochs // 100),
        **own_settings,
    }


def epochs_for(recipe: Recipe, examples: int) -> int:
    """As many as the recipe says, else enough."""
    if recipe.epochs is not None:
        return recipe.epochs
    return enough_epochs(examples, max(recipe.batch_size, 1))


def enough_epochs(examples: int, batch_size: int) -> int:
    """At least 10, and enough for 2,000 steps."""
    return max(FEWEST_EPOCHS, -(-FEWEST_STEPS // -(-examples // batch_size)))


def make_likelihood(recipe: Recipe, prepared: PreparedData) -> Likelihood:
    """As asked for, or as the data suggests; classes and units are the data's."""
    name, _, _ = (recipe.likelihood or "").partition(":")
    if not name:
        name = "categorical" if prepared.kind == "classification" else "gaussian"
    # HMC samples the weights; a noise that is a parameter of its own would have no posterior.
    noise = "heteroscedastic" if recipe.method == "hmc" else "learned"
    likelihood = likelihoods.parse(recipe.likelihood or (f"gaussian:{noise}" if name == "gaussian" else name))
    known: dict[str, Any] = {"location": prepared.target_mean, "scale": prepared.target_scale}
    known["classes"] = len(prepared.class_names) or None
    likelihood = likelihoods.from_spec(likelihood.spec() | {option: known[option] for option in likelihood.from_data})
    if likelihood.kind != prepared.kind:
        raise ValueError(f"likelihood {name} is for {likelihood.kind}, the data is a {prepared.kind}")
    return likelihood


def make_network(recipe: Recipe, shape: tuple[int, ...], outputs: int) -> Callable[[], nn.Module]:
    """A function that makes the network; weights start as torch draws them under the recipe's seed."""
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
            raise ValueError(f"units names {len(units)} widths, layers says {recipe.layers}")
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
    """A network of the user's, `module:factory`, found as Python finds modules and in the current folder.

    The factory is called without arguments, or with `inputs` (a number for a table, else the shape), `input_shape` and
    `outputs` where it has such parameters.
    """
    module_name, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as problem:
        raise ValueError(f"network {text}: there is no module {problem.name!r} in this folder, nor installed") from None
    except AttributeError:
        raise ValueError(f"network {text}: {module_name} has no {name!r}") from None
    except Exception as problem:
        raise ValueError(f"network {text}: importing {module_name} failed: {problem}") from problem
    if not callable(factory):
        raise TypeError(f"network {text} must be a function that makes a torch.nn.Module, got {factory!r}")
    given = _arguments(text, factory, shape, outputs)

    def make() -> nn.Module:
        try:
            network = factory(**given)
        except Exception as problem:
            raise ValueError(f"network {text} cannot be made: {problem}") from problem
        if not isinstance(network, nn.Module):
            raise TypeError(f"network {text} must make a torch.nn.Module, got {type(network).__name__}")
        return network

    return make


def _arguments(
    text: str, factory: Callable[..., Any], shape: tuple[int, ...] | None, outputs: int | None
) -> dict[str, Any]:
    """What a factory is called with; one that needs more is refused by the name of what it needs."""
    inputs = shape[0] if shape is not None and len(shape) == 1 else shape
    known = {"inputs": inputs, "outputs": outputs, "input_shape": shape}
    taken = inspect.signature(factory).parameters
    given = {key: value for key, value in known.items() if key in taken and value is not None}
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for key, parameter in taken.items():
        if key not in given and parameter.default is parameter.empty and parameter.kind not in collecting:
            why = "which this run does not say" if key in known else "a factory is given inputs and outputs alone"
            raise ValueError(f"network {text} needs {key!r}, {why}: give it a default")
    return given


def _check_returns(text: str, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Refuse a network of several outputs: which one is meant can be said in Python only."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = make().eval()
        try:
            result = network(torch.zeros(2, *shape))
        except Exception:  # noqa: BLE001 -- said in full, with the data's own shapes, where it is fitted
            return
    if not isinstance(result, torch.Tensor):
        raise TypeError(
            f"network {text} returns {type(result).__name__}, not a tensor: let its forward return the one output, or "
            "fit it in Python with output="
        )


def _check_trained_weights(recipe: Recipe) -> None:
    """Refuse a prior around trained weights for a network that starts with random ones."""
    if ":" in recipe.network or "pretrained" not in (recipe.prior or ""):
        return
    densities = priors.parse_mapping(recipe.prior or "").values()
    pretrained = next((density for density in densities if isinstance(density, priors.Pretrained)), None)
    if pretrained is not None:
        raise ValueError(
            f"the prior {pretrained.text} needs trained weights, the network {recipe.network!r} starts with random "
            "ones: name a function that returns your trained network, --network module:factory"
        )


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
