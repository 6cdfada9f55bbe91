"""Whether too small widths mislead pruning: mean-field signal-to-noise against that of better posteriors.

On digits, where better posteriors can be had: softmax regression, whose posterior has one peak (HMC draws from it
itself), and a network with a hidden layer (a full-rank Gaussian that starts where the mean-field one ended, so that the
weights of both mean the same). With a fixed share to prune only the order of the weights matters: the same mean-field
network is pruned in its own order, in that of its means over the better posterior's widths, in the better posterior's
and by magnitude.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from bayesify import HMC, Variational, networks
from bayesify.evaluation.pruning import prunable_weights, scores
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.work import Work

FRACTIONS = (0.25, 0.5, 0.75, 0.9)
HIDDEN = {"softmax regression": 0, "hidden layer": 1}
# A hidden layer that starts as wide as the posterior of a softmax regression learns nothing.
START = {"softmax regression": -1.0, "hidden layer": -3.0}
REFERENCE = {"softmax regression": "HMC", "hidden layer": "full-rank Gaussian"}


def tasks(work: Work) -> dict[str, tuple[Any, ...]]:
    """The parts of every kind and seed; they need no GPU."""
    return {part(kind, seed): (compare, work, kind, seed) for kind in HIDDEN for seed in work.seeds}


def part(kind: str, seed: int) -> str:
    """A part's name."""
    return f"widths-{kind.replace(' ', '-')}-{seed}"


def compare(work: Work, kind: str, seed: int) -> dict[str, Any]:
    """One split of the digits: widths, orders and pruning curves of a mean-field posterior and a better one."""
    found = prepare_data(Recipe(data="digits", normalise="126", split=seed, network="mlp"))
    (x, y), test = found.train, found.test
    settings = work["widths"]

    def network() -> Any:
        return networks.mlp(x.shape[1], 10, units=settings["units"], layers=HIDDEN[kind])

    mean_field = Variational(network, "categorical", prior="normal:1", estimator="local", rho=START[kind], seed=seed)
    fit: dict[str, Any] = {
        "batch_size": 100,
        "learning_rate": 1e-2,
        "schedule": "cosine",
        "seed": seed,
        "progress": work.progress,
    }
    mean_field.fit((x, y), epochs=settings["epochs"], compiled=False, **fit)
    if kind == "softmax regression":
        hmc = HMC(network, "categorical", prior="normal:1", chains=4, seed=seed)
        hmc.fit((x, y), warm_up=settings["warm_up"], samples=settings["samples"], seed=seed, progress=work.progress)
        drawn = hmc.weights(range(4 * settings["samples"]), 0)
        mean, std = drawn.mean(0), drawn.std(0)
    else:
        full = Variational(network, "categorical", prior="normal:1", family="full_rank", seed=seed)
        with torch.no_grad():
            full.mu.copy_(mean_field.mu)
            full.rho.copy_(mean_field.rho)
        full.fit((x, y), epochs=settings["epochs"], draws=4, compiled=False, **fit)
        mean, std = full.mean_weights, full.std
    return {"seed": seed} | against(mean_field, mean, std, test)


def against(method: Variational, mean: Tensor, std: Tensor, test: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """A mean-field posterior against means and standard deviations that are taken to be right."""
    prunable = prunable_weights(method)
    orders = {
        "own": scores(method, "snr")[prunable],
        "widths": (method.mean_weights.abs() / std)[prunable],
        "reference": (mean.abs() / std)[prunable],
        "magnitude": scores(method, "magnitude")[prunable],
    }
    ratio = (method.std / std)[prunable]
    return {
        "ratio": float(ratio.median()),
        "spread_of_ratio": float(torch.quantile(ratio, 0.9) / torch.quantile(ratio, 0.1)),
        "rank_correlation": _rank_correlation(orders["own"], orders["reference"]),
        "errors": {
            name: [error_in_order(method, prunable, order, fraction, test) for fraction in (0.0, *FRACTIONS)]
            for name, order in orders.items()
        },
    }


def _rank_correlation(first: Tensor, second: Tensor) -> float:
    ranks = torch.stack([one.argsort().argsort().double() for one in (first, second)])
    return float(torch.corrcoef(ranks)[0, 1])


def error_in_order(
    method: Variational, prunable: Tensor, order: Tensor, fraction: float, test: tuple[Tensor, Tensor]
) -> float:
    """The test error without the share of the weights that comes first in an order."""
    kept = torch.ones_like(prunable)
    lowest = order.argsort()[: round(fraction * len(order))]
    kept[prunable.nonzero().squeeze(1)[lowest]] = False
    small = copy.deepcopy(method)
    small.prune_to(kept)
    return float((small.predict(test[0], draws=50).probs.argmax(-1) != test[1]).double().mean())
