"""Networks and chains of the experiment, one a part: each is trained, and keeps its answers to the test images.

A chain begins at a plain network, whose answers are kept too: together these are an ensemble. A method of several
networks or chains is the mean over its parts, so that parts can be computed apart.
"""

from __future__ import annotations

import base64
import traceback
import warnings
from collections.abc import Mapping
from functools import lru_cache
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.errors import BayesifyWarning
from bayesify_studies.experiments.hmc_cifar10.network import answers_of_hmc, at_the_priors_norm, images, resnet20
from bayesify_studies.experiments.hmc_cifar10.settings import SCALE

Part = tuple[Any, ...]
Told = Mapping[str, Mapping[str, Any]]
PLAIN, CHAIN = "point", "sghmc, "


def pilots(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """For some seeds, a chain of SGHMC with each setting to choose from."""
    tried = [name for name in settings["recipes"] if name.startswith(CHAIN)]
    return {f"choose-{seed}": (answered, tried, seed, settings, device) for seed in range(settings["pilots"])}


def distances(settings: Mapping[str, Any], told: Told) -> dict[str, float]:
    """Total variation of each setting, its chains taken together, on the images for choosing."""
    first = settings["choosing"]
    reference = answers_of_hmc()[:first]
    return {
        name.removeprefix(CHAIN): total_variation(mean_of(own)[:first], reference)
        for name in settings["recipes"]
        if name.startswith(CHAIN)
        and (own := [one[name] for part, one in told.items() if part.startswith("choose") and _good(one, name)])
    }


def chosen(settings: Mapping[str, Any], told: Told) -> str:
    """The setting whose chains are nearest to HMC on the images for choosing."""
    found = distances(settings, told)
    if not found:
        raise ValueError("no chain for choosing has ended: " + "; ".join(str(one) for one in told.values())[:500])
    return min(found, key=found.__getitem__)


def scored(settings: Mapping[str, Any], told: Told, device: str) -> dict[str, Part]:
    """The networks and chains that count, the most important first."""
    own = [CHAIN + chosen(settings, told)] if distances(settings, told) else []
    return {
        f"{name}-{seed}": (answered, own if name == "sghmc" else [name], seed, settings, device)
        for name, seed in settings["order"]
        if own or name != "sghmc"
    }


def epochs_of(part: Part) -> float:
    """The work of a part, in epochs of one network."""
    _, names, _, settings, _ = part
    recipes = [settings["recipes"][name] for name in names]
    begin = settings["recipes"][PLAIN]["fit"]["epochs"] if any(_begins(one) for one in recipes) else 0
    return float(begin + sum(one["fit"]["epochs"] for one in recipes))


def answered(names: list[str], seed: int, settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Train networks or chains of one seed, and predict the test images; what failed says why.

    Those that begin at a plain network share it, and it is told beside them.
    """
    found: dict[str, Any] = {}
    plain = None
    if any(_begins(settings["recipes"][name]) for name in names):
        plain = _attempt(found, PLAIN, seed, settings, device, None)
    for name in names:
        _attempt(found, name, seed, settings, device, plain)
        if _begins(settings["recipes"][name]) and _good(found, name):
            for key in ("epochs", "training_seconds"):
                found[name][key] += found[PLAIN][key]
    good = [found[name] for name in found if _good(found, name)]
    return found | ({"work_seconds": sum(one["work_seconds"] for one in good)} if len(good) == len(found) else {})


def pooled(told: Told, kind: str) -> list[Mapping[str, Any]]:
    """The networks or chains of one name in all parts, one of each seed."""
    by_seed = {part.rsplit("-", 1)[1]: one[kind] for part, one in told.items() if _good(one, kind)}
    return list(by_seed.values())


def mean_of(pool: list[Mapping[str, Any]]) -> Tensor:
    """Mean probabilities of networks or chains, each by its number of draws, `[images, 10]`."""
    draws = torch.tensor([float(one["draws"]) for one in pool])
    each = torch.stack([unpacked(one["probs"]) for one in pool])
    mean: Tensor = torch.tensordot(draws / draws.sum(), each, 1)
    return mean


def total_variation(probs: Tensor, reference: Tensor) -> float:
    """Half of the sum of absolute differences, averaged over images."""
    return float(0.5 * (probs - reference).abs().sum(1).mean())


def packed(probs: Tensor) -> str:
    """Probabilities as text, in half precision."""
    return base64.b64encode(probs.cpu().half().numpy().tobytes()).decode()


def unpacked(text: str) -> Tensor:
    """Probabilities from text, `[images, 10]`, made to sum to one; what rounded to 0 is set to 2^-24."""
    probs = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.half).reshape(-1, 10).float()
    probs = probs.clamp_min(2.0**-24)
    return probs / probs.sum(1, keepdim=True)


def _begins(recipe: Mapping[str, Any]) -> bool:
    return bool(recipe["make"].get("start") == "given")


def _good(told: Mapping[str, Any], name: str) -> bool:
    one = told.get(name)
    return isinstance(one, Mapping) and "probs" in one


def _attempt(
    found: dict[str, Any], name: str, seed: int, settings: Mapping[str, Any], device: str, plain: nn.Module | None
) -> nn.Module | None:
    """Train one network or chain and put what it tells into `found`; its mean network."""
    recipe = settings["recipes"][name]
    try:
        method, found[name] = _trained(recipe, seed, settings, device, plain)
    except Exception as problem:  # noqa: BLE001 -- the others go on
        traceback.print_exc()
        found[name] = {"failed": f"{type(problem).__name__}: {problem}"[:300]}
        return None
    return method.network.module(method.mean_weights) if name == PLAIN else None


def _trained(
    recipe: Mapping[str, Any], seed: int, settings: Mapping[str, Any], device: str, plain: nn.Module | None
) -> tuple[Any, dict[str, Any]]:
    torch.set_float32_matmul_precision("high")
    x, y, x_test, y_test = _images(settings["examples"], settings["tested"], device)
    torch.manual_seed(seed)
    network: nn.Module = resnet20(settings["width"], recipe.get("times", 1.0)).to(device)
    if _begins(recipe):
        if plain is None:
            raise ValueError("the plain network that it begins at is missing")
        network = at_the_priors_norm(plain, network, SCALE) if "times" in recipe else plain
    method = getattr(bf, recipe["method"])(network, "categorical", seed=seed, **recipe["make"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesifyWarning)
        history = method.fit((x, y), seed=seed, device=device, progress=False, **settings["fit"], **recipe["fit"])
    probs = method.predict(x_test, draws=recipe["draws"]).probs.float()
    seconds = [float(one) for one in history["seconds"]]
    return method, {
        "probs": packed(probs),
        "accuracy": float((probs.argmax(1) == y_test).float().mean()),
        "epochs": recipe["fit"]["epochs"],
        "draws": recipe["draws"],
        "training_nll": [round(float(one), 4) for one in history["nll"]],
        "training_seconds": sum(seconds),
        "work_seconds": median(seconds) * len(seconds),
    }


@lru_cache(maxsize=1)
def _images(examples: int, tested: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return images(examples, tested, device)
