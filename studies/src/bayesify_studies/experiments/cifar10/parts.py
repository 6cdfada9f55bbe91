"""The trainings of the experiments `cifar10` and `shift`, one a part.

Each network predicts held-out, test, unknown and corrupted images right after its training, so that no network has to
be stored. Short trainings choose the settings of VI and IVON by the NLL of the held-out images.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import bayesify as bf
from bayesify.errors import BayesifyWarning
from bayesify_studies.experiments.cifar10.network import (
    UNKNOWN,
    augmented,
    images,
    normalised,
    resnet18,
    unknown_images,
)
from bayesify_studies.experiments.cifar10.scores import all_scores, packed, unknown_auroc, unpacked
from bayesify_studies.experiments.cifar10.settings import LONGER
from bayesify_studies.experiments.framework.corruptions import OF_COLOURS, STRENGTHS, corrupt

Part = tuple[Any, ...]
Settings = Mapping[str, Any]
Told = Mapping[str, Mapping[str, Any]]
# Methods whose settings are chosen.
CHOSEN = ("ivon", "variational")
LONG = (*CHOSEN, "longer")
FIRST = "point-0"


def pilots(settings: Settings, device: str) -> dict[str, Part]:
    """The first plain network, and one short training for each candidate."""
    short = {
        f"choose-{number}": (short_training, name, settings, device)
        for number, name in enumerate(settings["candidates"])
    }
    # Three kinds of network first: what one compiles, later ones of its kind find.
    names = [*short][:2]
    first = {FIRST: (trained, settings["usual"]["point"], "point", 0, settings, device)}
    return {name: short[name] for name in names} | first | short


def tried(settings: Settings, told: Told, method: str) -> dict[str, Mapping[str, Any]]:
    """The scores on held-out images of a method's candidates, by name; those that failed say why."""
    names = enumerate(settings["candidates"])
    return {name: told[f"choose-{number}"] for number, name in names if name.startswith(method)}


def chosen(settings: Settings, told: Told, method: str) -> str:
    """The candidate with the lowest NLL on held-out images."""
    good = {name: one["nll"] for name, one in tried(settings, told, method).items() if "nll" in one}
    return min(good, key=good.__getitem__)


def scored(settings: Settings, told: Told, device: str) -> dict[str, Part]:
    """The networks that are scored, the most important first."""
    found: dict[str, Part] = {}
    for method, seed in settings["order"]:
        if method in CHOSEN:
            recipe = settings["candidates"][chosen(settings, told, method)]
        else:
            recipe = settings["usual"][method]
        found[f"{method}-{seed}"] = (trained, recipe, method, seed, settings, device)
    return found


def short_training(name: str, settings: Settings, device: str) -> dict[str, Any]:
    """A candidate's scores on the held-out images after a short training."""
    try:
        return _short_training(name, settings, device)
    except Exception as problem:  # noqa: BLE001 -- the other parts go on
        return _failure(problem)


def trained(recipe: Settings, method: str, seed: int, settings: Settings, device: str) -> dict[str, Any]:
    """A network's scores on test, unknown and corrupted images; a plain network's probabilities too, for ensembles."""
    try:
        return _trained(recipe, method, seed, settings, device)
    except Exception as problem:  # noqa: BLE001 -- the other parts go on
        return _failure(problem)


def summary(probs: Mapping[str, Tensor], settings: Settings) -> dict[str, Any]:
    """All scores of a network, or of the mean of several, from its probabilities."""
    data = _data(settings)
    labels = data.y_test[: settings["shifted"]]
    groups = {"held_out": (probs["held_out"], data.y_held_out), "test": (probs["test"], data.y_test)}
    corrupted = probs["corrupted"].unflatten(0, (len(OF_COLOURS), len(STRENGTHS), -1))
    for kind, of_kind in zip(OF_COLOURS, corrupted, strict=True):
        groups |= {f"{kind} {strength}": (own, labels) for strength, own in zip(STRENGTHS, of_kind, strict=True)}
    temperature, found = all_scores(probs["held_out"], data.y_held_out, groups)
    unknown = dict(zip(UNKNOWN, probs["unknown"].unflatten(0, (len(UNKNOWN), -1)), strict=True))
    known = probs["test"][: settings["shifted"]]
    return {
        "temperature": temperature,
        "scores": found,
        "auroc": {kind: unknown_auroc(known, own) for kind, own in unknown.items()},
    }


def ensemble_of(parts: list[Mapping[str, Any]], settings: Settings) -> dict[str, Any]:
    """The scores of the mean of plain networks."""
    probs = [{name: unpacked(text) for name, text in one["probs"].items()} for one in parts]
    mean = {name: torch.stack([one[name] for one in probs]).mean(0) for name in probs[0]}
    return summary(mean, settings)


def _short_training(name: str, settings: Settings, device: str) -> dict[str, Any]:
    data, recipe = _data(settings), settings["candidates"][name]
    bnn, spent = _fitted(recipe, settings["choosing_epochs"], 0, settings, device)
    probs = _probs(bnn, data.x_held_out, settings["draws"], settings, device)
    _, found = all_scores(probs, data.y_held_out, {"held_out": (probs, data.y_held_out)})
    return found["held_out"] | spent | {"name": name}


def _trained(recipe: Settings, method: str, seed: int, settings: Settings, device: str) -> dict[str, Any]:
    for kind in UNKNOWN:  # a data set that is missing is told before the training, not after it
        unknown_images(_data(settings).x_test[:1], kind)
    epochs = round(settings["epochs"] * (LONGER if method in LONG else 1))
    bnn, spent = _fitted(recipe, epochs, seed, settings, device)
    began = time.perf_counter()
    probs = predicted(bnn, settings, device)
    found = summary(probs, settings) | spent | {"prediction_seconds": time.perf_counter() - began}
    if method == "point":
        found["probs"] = {name: packed(own) for name, own in probs.items()}
        if seed == 0:
            found["laplace"] = _last_layer(bnn, settings, device)
        if seed == 1:
            found["swag"] = _swag(bnn, settings, device)
    return found


def _last_layer(plain: Any, settings: Settings, device: str) -> dict[str, Any]:
    """A Laplace approximation of the last layer around the plain network; nothing is trained again."""
    began, data = time.perf_counter(), _data(settings)
    best = plain.network.module(plain.mean_weights)
    laplace = bf.LaplaceApproximation(
        best, "categorical", prior="normal:1", prior_precision="marginal_likelihood", subset="last_layer"
    )
    laplace.approximate((normalised(data.x, device), data.y.to(device)), device=device)
    spent = {"training_seconds": time.perf_counter() - began, "epochs": 0}
    return summary(predicted(laplace, settings, device), settings) | spent


def _swag(plain: Any, settings: Settings, device: str) -> dict[str, Any]:
    """SWAG from the plain network on, as its authors start it."""
    epochs = max(1, round(settings["swag"]["share"] * settings["epochs"]))
    start = plain.network.module(plain.mean_weights)
    bnn, spent = _fitted(settings["swag"], epochs, 1, settings, device, start)
    return summary(predicted(bnn, settings, device), settings) | spent


def _fitted(
    recipe: Settings, epochs: int, seed: int, settings: Settings, device: str, start: Any = None
) -> tuple[Any, dict[str, Any]]:
    torch.set_float32_matmul_precision("high")
    data = _data(settings)
    torch.manual_seed(seed)
    network = resnet18(settings["width"]).to(device) if start is None else start
    bnn = getattr(bf, recipe["method"])(network, "categorical", seed=seed, **recipe["make"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesifyWarning)
        history = bnn.fit(
            (normalised(data.x, device), data.y.to(device)),
            augment=augmented,
            epochs=epochs,
            batch_size=settings["batch_size"],
            seed=seed,
            device=device,
            progress=False,
            **settings["fit"],
            **recipe["fit"],
        )
    return bnn, {
        "epochs": epochs,
        "training_nll": float(history["nll"][-1]),
        "training_seconds": float(sum(history["seconds"])),
    }


def predicted(bnn: Any, settings: Settings, device: str) -> dict[str, Tensor]:
    """Probabilities of the held-out, test, unknown and corrupted images, `[n, 10]` each."""
    data = _data(settings)
    clean = data.x_test[: settings["shifted"]]
    raw = {
        "held_out": data.x_held_out,
        "test": data.x_test,
        "unknown": torch.cat([unknown_images(clean, kind) for kind in UNKNOWN]),
    }
    found = {
        name: _probs(bnn, own, settings["shifted_draws" if name == "unknown" else "draws"], settings, device)
        for name, own in raw.items()
    }
    found["corrupted"] = torch.cat(
        [
            _probs(
                bnn,
                torch.cat([corrupt(clean.to(device), kind, strength) for strength in STRENGTHS]),
                settings["shifted_draws"],
                settings,
                device,
            )
            for kind in OF_COLOURS
        ]
    )
    return found


def _probs(bnn: Any, raw: Tensor, draws: int, settings: Settings, device: str) -> Tensor:
    precision = settings["fit"].get("precision", "full")
    predictive = bnn.predict(normalised(raw, device), draws=draws, precision=precision)
    probs: Tensor = predictive.probs.float().cpu()
    return probs


def _data(settings: Settings) -> Any:
    return images(settings["examples"], settings["held_out"], settings["tested"])


def _failure(problem: Exception) -> dict[str, Any]:
    traceback.print_exc()
    return {"failed": f"{type(problem).__name__}: {problem}"[:300]}
