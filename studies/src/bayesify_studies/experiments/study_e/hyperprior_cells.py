"""A cell of study E: one prior, its scale fixed or with a hyperprior, on one noisy data set, for all seeds at once.

Networks are 2-5-5-2 with tanh, mean field, trained on all 700 points at every step; each seed has data of its own. They
are scored against the known densities (`framework/planar.py`), so a score has no noise from a test set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesify.data import load
from bayesify.fleets import Fleet
from bayesify.methods import HMC, Method, Variational
from bayesify.networks import mlp
from bayesify_studies.experiments.framework.planar import Curves, Plane, circles, moons

FAMILIES = ("normal", "laplace", "cauchy")
HYPERPRIORS = {
    "half-normal": "half-normal(1)",
    "half-cauchy": "half-cauchy(1)",
    "inverse-gamma": "inverse-gamma(1,1)",
}
FACTOR = 0.8
# Between the seeds of two starts on the same data.
APART = 1000
# Of the seeds of two tries of a prior on the same data.
APART = 1000
# Where the true probability is this near to a half, a point lies near the true boundary.
NEAR = 0.1


def cells() -> list[tuple[str, str]]:
    """All 13: three families with a fixed scale or one of three hyperpriors, and the flat prior, which has no scale."""
    return [(family, scale) for family in FAMILIES for scale in ("fixed", *HYPERPRIORS)] + [("flat", "none")]


def truth(name: str, noise: float) -> Curves:
    """The densities behind a data set."""
    return moons(noise) if name == "moons" else circles(noise, FACTOR)


def points(name: str, noise: float, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """700 points to train on and 300 to choose by."""
    options: dict[str, Any] = {"factor": FACTOR} if name == "circles" else {}
    found = load(name, n=1000, noise=noise, seed=seed, **options)
    return (found.x_train, found.y_train), (found.x_test, found.y_test)


def measure_cell(
    name: str, noise: float, family: str, scale: str, warm_up: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Scores of every scale on the grid (one entry where there is no grid) by seed, `[scales][seeds]` each.

    With `tries` in the settings, a prior stands in as many rows, each with other starts on the same data.
    """
    texts = [text for text in _priors(family, scale, settings["scales"]) for _ in range(settings.get("tries", 1))]
    seeds = range(settings["seeds"])
    data = {seed: points(name, noise, seed) for seed in seeds}
    tries = settings.get("tries", 1)
    methods = [network(text, seed + APART * (row % tries)) for row, text in enumerate(texts) for seed in seeds]
    fleet = Fleet(methods)
    fleet.fit(
        [data[method.seed % APART][0] for method in methods],
        learning_rates=[settings["rate"]] * len(methods),
        epochs=settings["epochs"],
        batch_size=700,
        draws=settings["draws"],
        schedule="cosine",
        kl=f"uniform,warm-up={warm_up}" if warm_up else "uniform",
        progress=False,
    )
    plane = truth(name, noise).plane(settings["side"])
    rows = [score(method, plane, data[method.seed % APART][1], settings["answers"]) for method in methods]
    count = len(seeds)
    found: dict[str, Any] = {"priors": texts, "best_accuracy": plane.best_accuracy, "best_nll": plane.best_nll}
    found |= {key: [[row[key] for row in rows[i : i + count]] for i in range(0, len(rows), count)] for key in rows[0]}
    if len(texts) == 1:
        found["last_layer"] = last_layer(methods[0])
        found["surface"] = surface(methods[0], truth(name, noise), settings["answers"])
    if methods[0].prior is not None and methods[0].prior.n_random_scales:
        found["learned_scale"] = [float(method.log_scales[0].exp()) for method in methods]
    return found


def measure_hmc(name: str, noise: float, prior: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same scores from draws of the posterior itself, and whether the chains agree."""
    plan = settings["hmc"]
    train, check = points(name, noise, seed)
    method = HMC(_net(), "categorical", prior=prior, chains=plan["chains"], seed=seed)
    method.fit(train, warm_up=plan["warm_up"], samples=plan["samples"], seed=seed, progress=False)
    plane = truth(name, noise).plane(settings["side"])
    judged = method.diagnose()
    return score(method, plane, check, plan["answers"]) | {"r_hat": judged.r_hat}


def network(prior: str, seed: int) -> Variational:
    """One network; its seed is of its start, its noise and its data."""
    return Variational(_net(), "categorical", prior=prior, seed=seed, start="fresh", rho=-3.0)


def score(method: Method, plane: Plane, check: tuple[Tensor, Tensor], draws: int) -> dict[str, float]:
    """Against the densities, against the validation points, how sparse, and how unsure near the true boundary."""
    answer = method.predict(plane.points.float(), draws=draws)
    held = method.predict(check[0], draws=draws)
    log_probs = held.log_prob(check[1])
    near = (plane.probs[:, 0] - 0.5).abs() < NEAR
    unsure, mass = answer.std[:, 0].double(), plane.mass
    found = {
        "accuracy": plane.accuracy(answer.probs),
        "nll": plane.nll(answer.probs),
        "validation_accuracy": float((held.labels == check[1]).double().mean()),
        "validation_nll": float(-log_probs.mean()),
        "unsure_near": float((mass * unsure)[near].sum() / mass[near].sum()),
        "unsure_far": float((mass * unsure)[~near].sum() / mass[~near].sum()),
    }
    if isinstance(method, Variational):
        layer = last_layer(method)
        mean, std = torch.tensor(layer["mean"]), torch.tensor(layer["std"])
        found["near_zero"] = float((mean.abs() < 2 * std).double().mean())
        found["hoyer"] = hoyer(mean)
    return found


def hoyer(values: Tensor) -> float:
    """How few of n numbers carry the size: 0 where all are alike, 1 where one does (P. Hoyer 2004)."""
    root = values.numel() ** 0.5
    size = float(values.double().norm())
    return 0.0 if size == 0 else (root - float(values.double().abs().sum()) / size) / (root - 1)


def last_layer(method: Variational) -> dict[str, list[float]]:
    """Means and standard deviations of the last layer's ten weights."""
    place = [place for place in method.network.places if place.name.endswith("weight")][-1]
    rows = slice(place.start, place.stop)
    return {"mean": method.mu.detach()[rows].tolist(), "std": method.std[rows].tolist()}


def surface(method: Method, curves: Curves, draws: int, side: int = 40) -> dict[str, Any]:
    """The probability of class 0, which the study shows, and its spread over draws, on a coarse grid."""
    grid = curves.plane(side).points
    answer = method.predict(grid.float(), draws=draws)
    low, high = grid.amin(0).tolist(), grid.amax(0).tolist()
    rounded = {"probability": answer.probs[:, 0], "spread": answer.std[:, 0]}
    return {"side": side, "extent": [low[0], high[0], low[1], high[1]]} | {
        key: [round(value, 4) for value in values.tolist()] for key, values in rounded.items()
    }


def _priors(family: str, scale: str, grid: Sequence[float]) -> list[str]:
    if family == "flat":
        return ["flat"]
    return [f"{family}:{one:g}" for one in grid] if scale == "fixed" else [f"{family}:{HYPERPRIORS[scale]}"]


def _net() -> Any:
    return mlp(2, 2, units=5, layers=2, activation="tanh")
