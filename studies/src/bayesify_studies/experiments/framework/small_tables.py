"""Real tables of numbers with few rows to train: standardised parts, and small networks fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify import networks, noise
from bayesify.methods import Ensemble, Method, PointEstimate, Variational
from bayesify.training.warnings import without_warnings
from bayesify_studies.experiments.likelihoods.problems import table

TABLES = ("concrete", "diabetes", "power", "protein")
METHODS = {"point": "plain network", "ensemble": "ensemble of 5", "variational": "variational"}
Pair = tuple[Tensor, Tensor]


def shuffled(name: str, seed: int) -> tuple[Tensor, Tensor]:
    """All rows of a table in an order drawn by the seed: inputs `[n, inputs]` and targets `[n]`."""
    x, y = table("numbers", name)
    rows = noise.permutation(noise.keys(seed, noise.Stream.SHUFFLE, network=5)[0], len(y))
    return x[rows], y[rows]


def standardised(training: Pair, *others: Pair) -> list[Pair]:
    """Pairs in units of the training rows: mean 0 and standard deviation 1 there."""
    x, y = training
    middle, spread = x.mean(0), x.std(0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    return [
        (((one - middle) / spread).clamp(-10, 10).float(), ((target - y.mean()) / y.std()).float())
        for one, target in (training, *others)
    ]


def fitted(name: str, training: Pair, settings: Mapping[str, Any], seed: int) -> Method:
    """A network with one hidden layer and learned noise; all rows are one batch."""
    x, y = training
    bnn = _made(name, networks.mlp(x.shape[1], 1, units=settings["units"]), settings, seed)
    with without_warnings():
        bnn.fit(
            (x, y),
            epochs=settings["epochs"],
            batch_size=len(x),
            learning_rate=settings["rate"],
            schedule="cosine",
            seed=seed,
            compiled=False,
            progress=False,
        )
    return bnn


def _made(name: str, network: torch.nn.Module, settings: Mapping[str, Any], seed: int) -> Method:
    noise_of_targets = "gaussian:learned"
    if name == "point":
        return PointEstimate(network, noise_of_targets, start="fresh", seed=seed)
    if name == "ensemble":
        return Ensemble(network, noise_of_targets, members=5, seed=seed)
    if name == "bootstrapped":
        return Ensemble(network, noise_of_targets, members=settings["members"], bootstrap=True, seed=seed)
    return Variational(network, noise_of_targets, prior="normal:1", start="fresh", seed=seed)
