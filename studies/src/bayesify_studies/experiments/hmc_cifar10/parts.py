"""Networks and chains of the experiment, one a part: each is trained, and keeps its answers to the test images.

A method of several networks or chains is the mean over its parts, so that parts can be computed apart.
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
from torch import Tensor

import bayesify as bf
from bayesify.errors import BayesifyWarning
from bayesify_studies.experiments.hmc_cifar10.network import answers_of_hmc, drawn_from_prior, images, resnet20
from bayesify_studies.experiments.hmc_cifar10.settings import SCALE

Part = tuple[Any, ...]


def pilots(settings: Mapping[str, Any], device: str) -> dict[str, Part]:
    """One short chain of SGHMC for each setting to choose from."""
    names = [name for name in settings["recipes"] if name.startswith("choose-")]
    return {name: (answered, name, 0, settings, device) for name in names}


def chosen(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]) -> str:
    """The setting whose chain is nearest to HMC on the images for choosing."""
    reference = answers_of_hmc()[: settings["choosing"]]
    distances = {
        name: total_variation(unpacked(one["probs"])[: settings["choosing"]], reference)
        for name, one in told.items()
        if "probs" in one
    }
    if not distances:
        raise ValueError("no chain for choosing has ended: " + "; ".join(str(one) for one in told.values())[:500])
    return min(distances, key=distances.__getitem__).removeprefix("choose-")


def scored(settings: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, Part]:
    """The networks and chains that count, the most important first."""
    chains = {}
    if any("probs" in one for one in told.values()):
        own = chosen(settings, told)
        chains = {"sghmc": f"sghmc-{own}", "sghmc-short": f"choose-{own}"}
    return {
        f"{name}-{seed}": (answered, chains.get(name, name), seed, settings, device)
        for name, seed in settings["order"]
        if name in chains or name in settings["recipes"]
    }


def epochs_of(part: Part) -> float:
    """The work of a part, in epochs of one network."""
    _, name, _, settings, _ = part
    recipe = settings["recipes"][name]
    return float(recipe["fit"]["epochs"] * recipe["make"].get("members", 1))


def answered(name: str, seed: int, settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Train one network or chain, and predict the test images; what failed says why."""
    try:
        return _answered(name, seed, settings, device)
    except Exception as problem:  # noqa: BLE001 -- the other parts go on
        traceback.print_exc()
        return {"failed": f"{type(problem).__name__}: {problem}"[:300]}


def _answered(name: str, seed: int, settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    recipe = settings["recipes"][name]
    examples = settings["all_examples" if recipe.get("whole") else "examples"]
    x, y, x_test, y_test = _images(settings["all_examples"], settings["tested"], device)
    x, y = x[:examples], y[:examples]
    torch.manual_seed(seed)
    network = resnet20(settings["width"], recipe.get("times", 1.0))
    if "times" in recipe:
        drawn_from_prior(network, SCALE)
    method = getattr(bf, recipe["method"])(network.to(device), "categorical", seed=seed, **recipe["make"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesifyWarning)
        history = method.fit((x, y), seed=seed, device=device, progress=False, **settings["fit"], **recipe["fit"])
    probs = method.predict(x_test, draws=recipe["draws"]).probs.float()
    members, seconds = recipe["make"].get("members", 1), [float(one) for one in history["seconds"]]
    return {
        "probs": packed(probs),
        "accuracy": float((probs.argmax(1) == y_test).float().mean()),
        "epochs": recipe["fit"]["epochs"] * members,
        "networks": members,
        "draws": recipe["draws"],
        "training_nll": float(history["nll"][-1]),
        "training_seconds": sum(seconds),
        "work_seconds": median(seconds) * len(seconds),
    }


def total_variation(probs: Tensor, reference: Tensor) -> float:
    """Half of the sum of absolute differences, averaged over images."""
    return float(0.5 * (probs - reference).abs().sum(1).mean())


def packed(probs: Tensor) -> str:
    """Probabilities as text, in half precision."""
    return base64.b64encode(probs.cpu().half().numpy().tobytes()).decode()


def unpacked(text: str) -> Tensor:
    """Probabilities from text, `[images, 10]`, made to sum to one."""
    probs = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.half).reshape(-1, 10).float()
    return probs / probs.sum(1, keepdim=True)


@lru_cache(maxsize=1)
def _images(examples: int, tested: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return images(examples, tested, device)
