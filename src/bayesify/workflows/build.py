"""From a recipe and its material to an untrained method: the likelihood, the network, the method."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify import likelihoods, networks
from bayesify.likelihoods import Likelihood
from bayesify.methods import METHODS, Method
from bayesify.workflows.prepare import Material
from bayesify.workflows.recipe import OF_METHOD, Recipe

# What is used where neither the network nor the recipe says: MC dropout's rate, and hidden units for tables.
DROPOUT_RATE = {"classification": 0.2, "regression": 0.05}
UNITS_FOR_TABLES = {"classification": (50,), "regression": (10,)}
# Whose learning rate is not that of an optimiser of the mean loss (see docs/gotchas.md), and what goes to `fit`.
RATES = {
    "ivon": {"classification": 0.03, "regression": 0.03},
    "sgld": {"classification": 0.1, "regression": 0.01},
    "sghmc": {"classification": 0.02, "regression": 0.002},
}
OF_FIT = {"hmc": ("samples", "warm_up")}
# A few hundred examples make a handful of steps per epoch: small data needs more epochs to be learnt at all.
FEWEST_EPOCHS, FEWEST_STEPS = 10, 2000


def make_method(recipe: Recipe, material: Material) -> Method:
    """The method that a recipe describes, not trained yet, with the notes of its data."""
    recipe = suited(recipe, material)
    likelihood = make_likelihood(recipe, material)
    outputs = likelihood.width(likelihood.prepare(material.train[1]))
    settings: dict[str, Any] = {}
    for name in (*OF_METHOD, "start", "prior"):
        if getattr(recipe, name) is not None and name not in OF_FIT.get(recipe.method, ()):
            settings[name] = getattr(recipe, name)
    if "rho" in settings:
        settings["rho"] = _number_or_text(settings["rho"])
    if recipe.method == "mc-dropout" and ":" not in recipe.network:
        # A network of ours carries its dropout in its own description.
        settings.pop("p", None)
    bayesian = recipe.bayesian[0] if recipe.bayesian in {("all",), ("last_layer",)} else list(recipe.bayesian)
    network = make_network(recipe, tuple(material.train[0].shape[1:]), outputs)
    method = METHODS[recipe.method](network, likelihood, bayesian=bayesian, seed=recipe.seed, **settings)
    method.notes = {**material.notes, "outputs": outputs}
    return method


def suited(recipe: Recipe, material: Material) -> Recipe:
    """The recipe with what suits its data, where it does not say.

    Tables are small: a posterior over many weights would not converge in the steps they allow, so their networks are
    narrower, their steps larger and falling, and their gradients those that vary less.
    """
    table = material.preparation.image is None
    settings: dict[str, Any] = {}
    if recipe.method in RATES:
        settings = {
            "learning_rate": RATES[recipe.method][material.kind],
            "schedule": "cosine" if recipe.method == "ivon" else "constant",
        }
    elif recipe.method != "hmc":
        settings = {
            "learning_rate": 1e-2 if table else 1e-3,
            # Snapshots of SWAG are taken at a constant rate.
            "schedule": "cosine" if table and recipe.method != "swag" else "constant",
        }
    if table and recipe.network == "mlp":
        settings["units"] = UNITS_FOR_TABLES[material.kind]
    weights_alone = recipe.family not in {None, "mean_field"} or recipe.gradient or recipe.bound
    if table and recipe.method == "variational" and not weights_alone:
        settings["estimator"] = "local"
    if recipe.method == "mc-dropout" and recipe.dropout is None and ":" not in recipe.network:
        settings["p"] = DROPOUT_RATE[material.kind if table else "classification"]
    return replace(recipe, **{name: value for name, value in settings.items() if getattr(recipe, name) is None})


def fit_settings(recipe: Recipe, examples: int) -> dict[str, Any]:
    """What `fit` is told, in the words of the recipe's method."""
    if recipe.method == "hmc":
        named = {name: getattr(recipe, name) for name in OF_FIT["hmc"]}
        return {"seed": recipe.seed, "device": recipe.device} | {k: v for k, v in named.items() if v is not None}
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
    }


def epochs_for(recipe: Recipe, examples: int) -> int:
    """As many as the recipe says, else enough."""
    if recipe.epochs is not None:
        return recipe.epochs
    return enough_epochs(examples, max(recipe.batch_size, 1))


def enough_epochs(examples: int, batch_size: int) -> int:
    """At least 10, and enough for 2,000 steps."""
    return max(FEWEST_EPOCHS, -(-FEWEST_STEPS // -(-examples // batch_size)))


def make_likelihood(recipe: Recipe, material: Material) -> Likelihood:
    """As asked for, or as the data suggests; classes and units are the data's."""
    name, _, _ = (recipe.likelihood or "").partition(":")
    if not name:
        name = "categorical" if material.kind == "classification" else "gaussian"
    # HMC samples the weights; a noise that is a parameter of its own would have no posterior.
    noise = "heteroscedastic" if recipe.method == "hmc" else "learned"
    likelihood = likelihoods.parse(recipe.likelihood or (f"gaussian:{noise}" if name == "gaussian" else name))
    known: dict[str, Any] = {"location": material.target_mean, "scale": material.target_scale}
    known["classes"] = len(material.class_names) or None
    likelihood = likelihoods.from_spec(likelihood.spec() | {option: known[option] for option in likelihood.from_data})
    if likelihood.kind != material.kind:
        raise ValueError(f"likelihood {name} is for {likelihood.kind}, the data is a {material.kind}")
    return likelihood


def make_network(recipe: Recipe, shape: tuple[int, ...], outputs: int) -> Callable[[], nn.Module]:
    """A function that makes the network; weights start as torch draws them under the recipe's seed."""
    if ":" in recipe.network:
        make = user_factory(recipe.network, shape, outputs)
        _check_returns(recipe.network, make, shape)
        return make
    named: dict[str, Any] = {"activation": recipe.activation, "dropout": recipe.dropout}
    if recipe.method == "mc-dropout":
        if recipe.p is not None and not 0 < recipe.p < 1:
            raise ValueError(f"p must be a dropout rate between 0 and 1, got {recipe.p!r}")
        named["dropout"] = recipe.p or recipe.dropout or DROPOUT_RATE["classification"]
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


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
