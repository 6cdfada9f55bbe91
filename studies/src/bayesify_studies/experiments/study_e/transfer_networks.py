"""Networks that learn five classes and then five others: what the second learning is given of the first.

prior    variational; the old posterior is the prior, the last layer has a new one
start    variational; it starts where the old means and widths are, under an ordinary prior
nothing  variational; a fresh start and an ordinary prior
tuned    a plain network that starts from the old plain network's weights
probe    the same with all but the last layer fixed
plain    a plain network with a fresh start
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from bayesify import metrics, networks, noise
from bayesify.likelihoods import Categorical
from bayesify.methods import Method, PointEstimate, Variational
from bayesify.priors import Normal, Posterior
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.examples import Pair, first
from bayesify_studies.experiments.framework.work import Work

WAYS = {
    "power": "old posterior, discounted",
    "prior": "old posterior as prior",
    "start": "old means and widths as start",
    "nothing": "variational from scratch",
    "tuned": "fine-tuned",
    "probe": "last layer only",
    "plain": "plain from scratch",
}
VARIATIONAL = ("power", "prior", "start", "nothing")
RATE = 3e-3
OLD_PRIOR = "normal:0.3"
CLASSES = 5

# Way, pictures of each class, and the prior's scale, the learning rate and the old posterior's power.
Cell = tuple[str, int, float, float, float]


@dataclass(frozen=True)
class Old:
    """What was learnt of the old classes."""

    posterior: Variational
    plain: PointEstimate


def one_seed(
    work: Work, home: str, data: str, seed: int, cells: Sequence[Cell], *, choosing: bool = False
) -> dict[str, Any]:
    """Learn the old classes, then the new ones in each way, from as many pictures and with the setting given.

    Scores are on test pictures, or where something is to be chosen on training pictures that were not learnt from.
    """
    train, test = halves(data, new=False)
    train = first(train, work["old_examples"])
    plan = old_plan(work, seed)
    posterior = work.fitted(f"{home}/posterior", lambda: variational(train, OLD_PRIOR, seed), train, **plan)
    plain = work.fitted(f"{home}/plain", lambda: _plain(_network(train), OLD_PRIOR, seed), train, **plan)
    assert isinstance(posterior, Variational)
    assert isinstance(plain, PointEstimate)
    old = Old(posterior, plain)
    x, y = first(test, work["tested"])
    found: dict[str, Any] = {
        "old_accuracy": metrics.accuracy(posterior.predict(x, draws=work["draws"]).probs, y),
        "cells": [],
    }
    train, test = halves(data, new=True)
    for way, count, *setting in cells:
        few, rest = few_of_each(train, count, seed)
        method = learnt(work, old, way, few, setting, seed)
        x, y = first(rest, work["chosen_on"]) if choosing else first(test, work["tested"])
        answer = method.predict(x, draws=work["draws"])
        scored = {"accuracy": metrics.accuracy(answer.probs, y), "nll": -float(answer.log_prob(y).double().mean())}
        found["cells"].append({"way": way, "count": count, "setting": setting} | scored)
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    return found


def old_plan(work: Work, seed: int) -> dict[str, Any]:
    """How the old classes are learnt."""
    return {
        "epochs": work["old_epochs"],
        "learning_rate": RATE,
        "schedule": "cosine",
        "seed": seed,
        "batch_size": 128,
    }


def learnt(work: Work, old: Old | None, way: str, few: Pair, setting: Sequence[float], seed: int) -> Method:
    """A network that has learnt the new classes from few pictures of each, all in one batch; `nothing` needs no old."""
    scale, rate, power = setting
    network, ordinary = _network(few), Normal(scale)
    method: Variational | PointEstimate
    if way == "nothing":
        method = variational(few, ordinary, seed)
    elif old is None:
        raise ValueError(f"{way!r} needs what was learnt before")
    elif way in VARIATIONAL:
        prior: Any = ordinary
        if way in {"prior", "power"}:
            last = f"{_last_layer(network())}.*"
            prior = {last: ordinary, "*": Posterior(old.posterior, otherwise=ordinary, power=power)}
        method = variational(few, prior, seed)
        _take_over(method, old.posterior)
    elif way == "probe":
        method = _plain(lambda: _fixed(network(), old.plain), ordinary, seed)
    else:
        method = _plain(network, ordinary, seed)
        if way == "tuned":
            _take_over(method, old.plain)
    method.fit(
        few,
        epochs=work["steps"],
        batch_size=len(few[1]),
        learning_rate=rate,
        schedule="cosine",
        seed=seed,
        compiled=False,
        progress=False,
    )
    return method


@lru_cache(maxsize=4)
def halves(data: str, *, new: bool) -> tuple[Pair, Pair]:
    """Training and test pictures of the first five classes or of the last five."""
    names = prepare_data(Recipe(data=data, network="cnn")).class_names
    found = prepare_data(Recipe(data=data, network="cnn", withhold=names[:CLASSES] if new else names[CLASSES:]))
    return found.train, found.test


def few_of_each(pair: Pair, count: int, seed: int) -> tuple[Pair, Pair]:
    """So many pictures of each class, the same ones among more of them, and all others."""
    x, y = pair
    order = noise.permutation(noise.keys(seed, noise.Stream.SPLIT)[0], len(y))
    picked = torch.cat([order[y[order] == label][:count] for label in range(int(y.max()) + 1)])
    rest = order[~torch.isin(order, picked)]
    return (x[picked], y[picked]), (x[rest], y[rest])


def variational(pair: Pair, prior: Any, seed: int) -> Variational:
    """A network for inputs like these, untrained."""
    likelihood = Categorical(classes=CLASSES)
    return Variational(_network(pair), likelihood, prior=prior, estimator="flipout", start="fresh", seed=seed)


def _network(pair: Pair) -> Any:
    shape = tuple(pair[0].shape[1:])
    if min(shape[1:]) < 12:  # the 8x8 digits
        return lambda: networks.mlp(math.prod(shape), CLASSES, units=32)
    return lambda: networks.cnn(shape, CLASSES, "lenet")


def _plain(network: Any, prior: Any, seed: int) -> PointEstimate:
    return PointEstimate(network, Categorical(classes=CLASSES), prior=prior, start="given", seed=seed)


def _take_over(method: Variational | PointEstimate, old: Variational | PointEstimate) -> None:
    """Start every layer but the last, which tells other classes apart, from where the old network is."""
    last = _last_layer(method.network.template)
    with torch.no_grad():
        for place in method.network.places:
            if place.name.startswith(f"{last}."):
                continue
            part = slice(place.start, place.stop)
            if isinstance(method, Variational) and isinstance(old, Variational):
                method.mu[part] = old.mu[part]
                method.rho[part] = old.rho[part]
            elif isinstance(method, PointEstimate) and isinstance(old, PointEstimate):
                method.theta[part] = old.theta[part]


def _fixed(module: nn.Module, old: PointEstimate) -> nn.Module:
    """The old network's layers, which do not train, below a new last one."""
    last = _last_layer(module)
    tensors = {place.name: old.theta.detach()[place.start : place.stop] for place in old.network.places}
    for name, parameter in module.named_parameters():
        if not name.startswith(f"{last}."):
            parameter.data = tensors[name].view(parameter.shape).clone()
            parameter.requires_grad = False
    return module


def _last_layer(module: nn.Module) -> str:
    names: list[str] = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    return names[-1]
