"""Small networks on MNIST, each scored on turned, noisy and blurred digits right after its training."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import load
from bayesify.errors import BayesifyWarning
from bayesify_studies.experiments.cifar10.scores import all_scores
from bayesify_studies.experiments.framework.corruptions import OF_DIGITS, STRENGTHS, corrupt
from bayesify_studies.experiments.shift.settings import CHOICE, RECIPES

Part = tuple[Any, ...]
Settings = Mapping[str, Any]
Told = Mapping[str, Mapping[str, Any]]


def pilots(settings: Settings, device: str) -> dict[str, Part]:
    """One training for each method and rate, with a seed that is not scored."""
    own = settings["digits"]
    return {
        f"digits-choose-{method}-{rate:g}": (trained, method, rate, CHOICE, own, device)
        for method in own["methods"]
        for rate in RECIPES[method]["rates"]
    }


def chosen(told: Told, method: str) -> float:
    """The rate with the lowest NLL on held-out digits; the first where all failed."""
    losses = {}
    for rate in RECIPES[method]["rates"]:
        one = told[f"digits-choose-{method}-{rate:g}"]
        losses[rate] = one["scores"]["held_out"]["nll"] if "scores" in one else math.inf
    return float(min(losses, key=losses.__getitem__))


def scored(settings: Settings, told: Told, device: str) -> dict[str, Part]:
    """One training for each method and seed, seed by seed."""
    own = settings["digits"]
    return {
        f"digits-{method}-{seed}": (trained, method, chosen(told, method), seed, own, device)
        for seed in range(own["seeds"])
        for method in own["methods"]
    }


def trained(method: str, rate: float, seed: int, settings: Settings, device: str) -> dict[str, Any]:
    """The temperature of one network or ensemble, and its scores on clean and on corrupted digits.

    With the seed of the choices it has the scores on held-out digits alone.
    """
    try:
        return _trained(method, rate, seed, settings, device)
    except Exception as problem:  # noqa: BLE001 -- the other parts go on
        traceback.print_exc()
        return {"failed": f"{type(problem).__name__}: {problem}"[:300]}


def perceptron(units: int) -> nn.Module:
    """Two hidden layers on images `[n, 1, 28, 28]`."""
    hidden = [nn.Linear(28 * 28, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(units, 10))


def _trained(method: str, rate: float, seed: int, settings: Settings, device: str) -> dict[str, Any]:
    x, y, x_held_out, y_held_out, x_test, y_test = _digits(
        settings["examples"], settings["held_out"], settings["tested"]
    )
    recipe = RECIPES[method]
    torch.manual_seed(seed)
    network = perceptron(settings["units"])
    bnn = getattr(bf, recipe["method"])(network, "categorical", seed=seed, **recipe["make"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesifyWarning)
        history = bnn.fit(
            (_scaled(x), y),
            epochs=settings["epochs"],
            batch_size=settings["batch_size"],
            seed=seed,
            device=device,
            progress=False,
            learning_rate=rate,
            schedule="cosine",
        )

    def probs(raw: Tensor) -> Tensor:
        found: Tensor = bnn.predict(_scaled(raw).to(device), draws=settings["draws"]).probs.float().cpu()
        return found

    held_out = probs(x_held_out)
    groups = {"held_out": (held_out, y_held_out)}
    if seed != CHOICE:
        groups |= {"test": (probs(x_test), y_test)} | {
            f"{kind} {strength}": (probs(corrupt(x_test, kind, strength)), y_test)
            for kind in OF_DIGITS
            for strength in STRENGTHS
        }
    temperature, found = all_scores(held_out, y_held_out, groups)
    return {
        "temperature": temperature,
        "scores": found,
        "rate": rate,
        "training_seconds": float(sum(history["seconds"])),
    }


def _scaled(images: Tensor) -> Tensor:
    return images.float() / 255


@lru_cache(maxsize=1)
def _digits(examples: int, held_out: int, tested: int) -> tuple[Tensor, ...]:
    data = load("mnist")
    x, y = data.x_train[:, None], data.y_train
    between = slice(examples, examples + held_out)
    return x[:examples], y[:examples], x[between], y[between], data.x_test[:tested, None], data.y_test[:tested]
