"""The Weights page: densities of the posterior's weights, their signal-to-noise ratios, and the cost of pruning."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, HTTPException, Query

from bayesify.evaluation import score
from bayesify.evaluation.pruning import RULES, prunable_weights, prune, scores
from bayesify.methods import Method, Variational
from bayesify.plots.weights import signal_to_noise
from bayesify.studio.models import API, DrawCount, ModelStore, Seed, folder_of, title_of

BINS = 81
_SAMPLED = 200_000
_NO_WIDTH = (
    "it has no posterior width for each weight, so it has no signal-to-noise ratios and cannot be pruned by them"
)
_CORRELATED = "its weights are correlated, so they cannot be judged and removed one by one"


def router(store: ModelStore) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API)
    measure = lru_cache(500)(partial(_measure, store))

    @routes.get("/weights")
    def weights(model: str) -> dict[str, Any]:
        method, lock = store.copy_of(model)
        with lock:
            return {"model": model, "method": method.name, "title": title_of(method), **describe(method)}

    @routes.get("/weights/pruned")
    def pruned(
        model: str,
        fraction: Annotated[float, Query(ge=0, lt=1)] = 0.0,
        by: str = "snr",
        draws: DrawCount = 30,
        seed: Seed = 0,
    ) -> dict[str, Any]:
        if by not in RULES:
            raise HTTPException(422, f"by must be one of {', '.join(RULES)}, got {by!r}")
        return measure(model, round(fraction, 4), by, draws, seed)

    return routes


def describe(method: Method) -> dict[str, Any]:
    """Densities of the weights layer by layer over several draws; with a Gaussian posterior also their SNR."""
    draws = min(max(1, _SAMPLED // method.network.size), 30, method.held or 30)
    theta = method.weights(range(draws), seed=0).detach().double().cpu().numpy()
    mean = _means(method)
    places = [place for place in method.network.places if "bias" not in place.name.rpartition(".")[2]]
    reach = max(float(np.quantile(np.abs(theta[:, place.start : place.stop]), 0.995)) for place in places) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    layers = []
    for place in places:
        part = slice(place.start, place.stop)
        layers.append(
            {
                "name": place.name,
                "shape": list(place.shape),
                "weights": place.stop - place.start,
                "random": place.random,
                "density": _density(theta[:, part], edges),
                "density_of_means": None if mean is None else _density(mean[part], edges),
            }
        )
    centres = [round(float(value), 6) for value in 0.5 * (edges[1:] + edges[:-1])]
    described: dict[str, Any] = {
        "centres": centres,
        "layers": layers,
        "draws": draws,
        "weights": int(method.network.size),
    }
    described["prior"] = _prior_density(method, 0.5 * (edges[1:] + edges[:-1]))
    if not isinstance(method, Variational) or not_prunable(method) is not None:
        return described | {"snr": None, "graph": None, "why": not_prunable(method)}
    return described | {"snr": _snr(method), "single": _single(method), "graph": graph(method), "why": None}


def not_prunable(method: Method) -> str | None:
    """Why a method's weights cannot be removed one by one; None where they can."""
    if not isinstance(method, Variational) or method.annealed:
        return _NO_WIDTH
    return None if method.family == "mean_field" else _CORRELATED


def graph(method: Variational, most_nodes: int = 24) -> dict[str, Any] | None:
    """A drawing of a fully connected network: an evenly spread part of its nodes and every weight between them.

    Args:
        method: with a Gaussian posterior.
        most_nodes: of a layer.

    Returns:
        `sizes` of the layers, `shown` (how many of each are drawn) and `edges`: layer, from, to, the share of all
        prunable weights with a smaller signal-to-noise ratio and with a smaller magnitude, and the sign of the mean.
        None where a weight tensor is not a matrix, as in a convolution, or where the matrices do not follow on.

    """
    prunable = prunable_weights(method)
    places = [p for p in method.network.places if p.random and bool(prunable[p.start : p.stop].any())]
    shapes = [tuple(place.shape) for place in places]
    follow = all(a[0] == b[1] for a, b in pairwise(shapes) if len(a) == len(b) == 2)
    if not shapes or any(len(shape) != 2 for shape in shapes) or not follow:
        return None
    ranks = [_ranks(scores(method, rule), prunable) for rule in ("snr", "magnitude")]
    mean = method.mean_weights.detach().cpu()
    sizes = [shapes[0][1], *(shape[0] for shape in shapes)]
    nodes = [torch.linspace(0, size - 1, min(size, most_nodes)).round().long() for size in sizes]
    edges = []
    for layer, (place, shape) in enumerate(zip(places, shapes, strict=True)):
        for i, source in enumerate(nodes[layer].tolist()):
            for j, target in enumerate(nodes[layer + 1].tolist()):
                number = place.start + target * shape[1] + source
                by = [round(float(rank[number]), 4) for rank in ranks]
                edges.append([layer, i, j, *by, 1 if float(mean[number]) >= 0 else -1])
    return {"sizes": sizes, "shown": [len(part) for part in nodes], "edges": edges}


def _ranks(values: torch.Tensor, prunable: torch.Tensor) -> torch.Tensor:
    """The share of all prunable weights that have a smaller score, `[weights]`; 1 where a weight is not prunable."""
    shares = torch.ones(len(values), dtype=torch.float64)
    chosen = torch.nonzero(prunable.cpu()).flatten()
    order = values.detach().double().cpu()[chosen].argsort()
    shares[chosen[order]] = torch.arange(len(chosen), dtype=torch.float64) / max(1, len(chosen))
    return shares


def _means(method: Method) -> Any:
    """The mean weights; None where members or chains may be in different modes, so that their mean means nothing."""
    try:
        return method.mean_weights.detach().double().cpu().numpy()
    except ValueError:
        return None


def _density(values: Any, edges: Any) -> list[float]:
    counts = np.histogram(values, edges)[0] / values.size / np.diff(edges)
    return [round(float(value), 5) for value in counts]


def _prior_density(method: Method, centres: Any) -> list[float] | None:
    """The prior's density, where all weights have the same prior and it is proper and fixed."""
    from bayesify import priors

    text = None if method.prior is None else method.prior.spec()
    if not isinstance(text, str) or "=" in text or "(" in text or "fan" in text:
        return None
    prior: Any = priors.parse(text)
    if not prior.proper:
        return None
    values = prior.log_density(torch.as_tensor(centres)).exp()
    return [round(float(value), 5) for value in values]


def _snr(method: Variational) -> dict[str, Any]:
    snr = signal_to_noise(method)
    # Values far below the others are gathered at the left edge, as the report's histogram does.
    floor = 1e-3 * float(np.median(snr))
    shown = np.maximum(snr, floor)
    edges = np.geomspace(shown[0], max(shown[-1], shown[0] * 1.01) * (1 + 1e-9), 61)
    shares = np.histogram(shown, edges)[0] / len(shown)
    return {
        "edges": [float(f"{value:.5g}") for value in edges],
        "shares": [round(float(value), 6) for value in shares],
        # The threshold that removes each hundredth of the weights.
        "cuts": [float(f"{value:.5g}") for value in np.quantile(shown, np.linspace(0, 1, 101))],
        "gathered": int((snr < floor).sum()),
        "prunable": int(prunable_weights(method).sum()),
    }


def _single(method: Variational, count: int = 6) -> list[dict[str, Any]]:
    """Some weights from the largest signal-to-noise ratio to the smallest, each with its Gaussian."""
    # Weights that were pruned before are zero and have no width.
    prunable = prunable_weights(method) & (method.std > 0)
    order = torch.argsort(torch.where(prunable, scores(method, "snr"), -torch.inf), descending=True)
    chosen = order[torch.linspace(0, int(prunable.sum()) - 1, count).round().long()].tolist()
    mean, std = method.mean_weights.detach().cpu(), method.std.cpu()
    listed = []
    for number in chosen:
        place = next(place for place in method.network.places if place.start <= number < place.stop)
        where = np.unravel_index(number - place.start, tuple(place.shape))
        name = f"{place.name}[{', '.join(map(str, where))}]"
        listed.append({"name": name, "mean": float(mean[number]), "std": float(std[number])})
    return listed


def _measure(store: ModelStore, name: str, fraction: float, by: str, draws: int, seed: int) -> dict[str, Any]:
    method, lock = store.copy_of(name)
    if not isinstance(method, Variational) or not_prunable(method) is not None:
        raise HTTPException(422, f"{name} cannot be pruned: {not_prunable(method)}")
    examples = store.examples(name)
    with lock:
        small = prune(method, fraction, by)
        result = score(small.predict(examples.x, draws=draws, seed=seed), examples.y)
    kept = int(small.kept_weights.sum()) if small.kept_weights.numel() else int(method.network.random_size)
    return {
        "fraction": fraction,
        "error": result.rmse if result.error is None else result.error,
        "measure": "error" if result.error is not None else "RMSE",
        "nll": result.nll,
        "kept": kept,
        "examples": len(examples.x),
        "total": examples.total,
        "what": examples.what,
    }


def python(store: ModelStore, name: str, fraction: float, by: str, draws: int, seed: int) -> str:
    """The pruned network, its error and the page's charts in Python."""
    measure = "error" if store.get(name).method.likelihood.kind == "classification" else "rmse"
    part = store.examples(name).part
    return f"""from pathlib import Path

import bayesify as bf
from bayesify.runs import read_config
from bayesify.workflows.run_data import examples_of

run = Path({folder_of(store.get(name))!r})
bnn = bf.load(run)
test = examples_of(read_config(run), run)
x, y = test.x{part}, test.y{part}
small = bf.prune(bnn, {fraction:g}, by="{by}")
for method in (bnn, small):
    print(bf.evaluate(method, (x, y), draws={draws}, seed={seed}).{measure})
bf.plots.weight_densities(bnn).figure.savefig("densities.png")
bf.plots.snr_histogram(bnn, cuts=[{fraction:g}]).figure.savefig("snr.png")
"""
