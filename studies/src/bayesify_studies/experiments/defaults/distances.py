"""Moons and circles against HMC: how far Auto, the annealed family and every method at its defaults are from it.

The data, the network (2-5-5-2 tanh) and the prior (normal:1) are those of `bayesify reproduce hmc-distance`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from bayesify import networks
from bayesify.errors import TrainingError
from bayesify.evaluation.predictive_distance import distance, halves
from bayesify.methods import HMC, Method
from bayesify.methods.cards import CARDS
from bayesify.predictive import Predictive
from bayesify.workflows.auto import Auto
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare.against_hmc import Comparison
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.recipe import DRAWS, make_recipe

DATA = ("circles", "moons")
ANNEALED = "variational, annealed"
# HMC is the reference, and is not compared with itself; Auto's choice is.
COMPARED = ("auto", ANNEALED, *(name for name in CARDS if name != "hmc"))
# The goals are theirs: these have all seeds, the others `SEEDS_OF_ALL`.
OF_GOALS = ("auto", ANNEALED)
SEEDS_OF_ALL = 5
CHAINS, WARM_UP, SAMPLES = 16, 200, 400
_MODEL = {"units": (5, 5), "layers": 2, "activation": "tanh"}
_MOST = 3200


def compared(data: str, seed: int, names: Sequence[str] = COMPARED) -> dict[str, Any]:
    """HMC's accuracy, and the accuracy, total variation and warnings of each method on one data set.

    Args:
        data: `moons` or `circles`.
        seed: of the data and of everything random.
        names: of the methods.

    Returns:
        Scores by method, as plain values.

    """
    prepared = Comparison({"data": data}, draws=_MOST).prepared(seed)
    (x, y), began = prepared.test, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        hmc = HMC(_network(), "categorical", prior="normal:1", chains=CHAINS, seed=seed + 1000)
        hmc.fit(prepared.train, warm_up=WARM_UP, samples=SAMPLES, seed=seed + 1000, progress=False, compiled=False)
        whole, first, second = halves(hmc, x, draws=CHAINS * SAMPLES)
        methods: dict[str, dict[str, Any]] = {}
        for name in names:
            started = time.perf_counter()
            try:
                method = _fitted(name, prepared, seed)
            except TrainingError as problem:
                methods[name] = {"error": str(problem)[:200], "warnings": ["error"]}
                continue
            prediction = method.predict(x, draws=_MOST if name in {"auto", ANNEALED} else DRAWS)
            methods[name] = {
                "used": method.name,
                "accuracy": _accuracy(prediction, y),
                "total_variation": distance(prediction, whole).total_variation,
                "warnings": sorted(method.warnings),
                "notes": sorted(method.checked.notes) if method.checked is not None else [],
                "seconds": time.perf_counter() - started,
            }
    return {
        "hmc_accuracy": _accuracy(whole, y),
        "floor": distance(first, second).total_variation,
        "methods": methods,
        "seconds": time.perf_counter() - began,
    }


def _network() -> torch.nn.Module:
    return networks.mlp(2, 2, units=[5, 5], activation="tanh")


def _fitted(name: str, prepared: PreparedData, seed: int) -> Method:
    if name == "auto":
        torch.manual_seed(seed)
        return Auto(_network(), "categorical", prior="normal:1").fit(prepared.train, seed=seed, progress=False)
    given: dict[str, Any] = {"method": "variational", "family": "annealed"} if name == ANNEALED else {"method": name}
    if CARDS[given["method"]].prior:
        given["prior"] = "normal:1"
    recipe = with_defaults(make_recipe({}, {"data": "moons", "seed": seed, **_MODEL, **given}), prepared)
    method = make_method(recipe, prepared)
    method.fit(prepared.train, progress=False, compiled=False, **fit_settings(recipe, len(prepared.train[0])))
    return method


def _accuracy(prediction: Predictive, targets: torch.Tensor) -> float:
    return float((prediction.labels == targets).double().mean())
