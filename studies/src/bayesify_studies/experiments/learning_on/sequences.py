"""Tasks one after another, learned in one of several ways, and the accuracy on every task so far.

posterior   variational: the posterior of the tasks so far is the prior of the next, with and without coresets
ewc         a plain network with a normal prior around its last weights, as precise as the Fisher information says
fine-tuned  a plain network that goes on from its last weights
joint       a plain network that is trained on all tasks at once
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from bayesify.data import load
from bayesify.decisions import Continual
from bayesify.errors import BayesifyWarning
from bayesify.methods import PointEstimate, Variational
from bayesify.networks import mlp
from bayesify.priors import Posterior

WAYS = ("posterior", "ewc", "fine-tuned", "joint")
Task = tuple[Tensor, Tensor, Tensor, Tensor]


def sequence(kind: str, way: str, seed: int, settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Learn all tasks of a kind (`permuted` or `split`) in one way; accuracies `[tasks learned][tasks tested]`.

    With `choosing` the accuracy is on training examples that are kept aside, otherwise on test examples.
    """
    with warnings.catch_warnings():
        # A fit with an old posterior as its prior is no better than that prior on data that it knows already.
        warnings.simplefilter("ignore", BayesifyWarning)
        tasks = [
            (x.to(device), y.to(device), tested_x.to(device), tested_y.to(device))
            for x, y, tested_x, tested_y in tasks_of(kind, seed, settings)
        ]
        return _LEARN[way](tasks, seed, {**settings, "kind": kind, "device": device})


def tasks_of(kind: str, seed: int, settings: Mapping[str, Any]) -> list[Task]:
    """Training and test examples of every task."""
    x, y, tested_x, tested_y = _digits(settings["data"])
    if settings["choosing"]:
        learned = len(y) * 5 // 6
        tested_x, tested_y = x[learned:], y[learned:]
        x, y = x[:learned], y[:learned]
    count = settings["examples"]
    if count is not None:
        x, y = x[:count], y[:count]
    if kind == "permuted":
        # The first task has the images as they are.
        orders = [torch.arange(x.shape[1])] + [
            torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1000 * seed + task))
            for task in range(1, settings["tasks"])
        ]
        return [(x[:, order], y, tested_x[:, order], tested_y) for order in orders]
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    return [
        (
            *_pair(x, y, first, second),
            *_pair(tested_x, tested_y, first, second),
        )
        for first, second in pairs
    ]


def _posterior(tasks: list[Task], seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    heads = settings["kind"] == "split"
    method = Variational(
        _network(tasks, settings, seed),
        "categorical",
        prior=settings["prior"],
        estimator="local",
        rho=settings["rho"],
        seed=seed,
    )
    learner = Continual(method, coreset=settings["coreset"], heads=heads, seed=seed)
    without, rehearsed = [], []
    for number, (x, y, _, _) in enumerate(tasks):
        learner.learn((x, y), str(number), **_plan(settings, seed + number))
        known = tasks[: number + 1]
        without.append([_accuracy(learner.predict(x, str(one), draws=20), y) for one, (_, _, x, y) in enumerate(known)])
        if number + 1 == len(tasks):
            learner.rehearse(
                **_plan(settings, seed)
                | {"epochs": settings["rehearsals"], "batch_size": settings["rehearsal_batch_size"]}
            )
            rehearsed = [_accuracy(learner.predict(x, str(one), draws=20), y) for one, (_, _, x, y) in enumerate(known)]
    return {"accuracy": without, "rehearsed": rehearsed, "rehearsal_batch_size": settings["rehearsal_batch_size"]}


def _ewc(tasks: list[Task], seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Online: the Fisher information of the tasks adds up, each at the weights after its task."""
    method: PointEstimate | None = None
    precision: Tensor | None = None
    rows, heads = [], _Heads(settings["kind"] == "split")
    for number, (x, y, _, _) in enumerate(tasks):
        if method is None or precision is None:
            method = PointEstimate(_network(tasks, settings, seed), "categorical", prior="normal:1", seed=seed)
            method.to(settings["device"])
            precision = torch.ones(method.network.size, device=settings["device"])
        else:
            prior = Posterior(SimpleNamespace(network=method.network, std=precision.rsqrt(), mean_weights=method.theta))
            net = method.network.module(method.theta.detach().cpu())
            heads.begin(net)
            method = PointEstimate(net, "categorical", prior=prior, seed=seed).to(settings["device"])
        method.fit((x, y), **_plan(settings, seed + number))
        heads.keep(method)
        fisher = _fisher(method, x, seed)
        if heads.own:
            fisher[heads.places(method)] = 0  # a head is left alone after its task
        precision = precision + settings["strength"] * len(y) * fisher
        rows.append(
            [_accuracy(heads.of(method, one).predict(x), y) for one, (_, _, x, y) in enumerate(tasks[: number + 1])]
        )
    return {"accuracy": rows}


def _fine_tuned(tasks: list[Task], seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    method = PointEstimate(_network(tasks, settings, seed), "categorical", prior=None, seed=seed)
    rows, heads = [], _Heads(settings["kind"] == "split")
    for number, (x, y, _, _) in enumerate(tasks):
        if number and heads.own:
            net = method.network.module(method.theta.detach().cpu())
            heads.begin(net)
            method = PointEstimate(net, "categorical", prior=None, seed=seed)
        method.fit((x, y), **_plan(settings, seed + number))
        heads.keep(method)
        rows.append(
            [_accuracy(heads.of(method, one).predict(x), y) for one, (_, _, x, y) in enumerate(tasks[: number + 1])]
        )
    return {"accuracy": rows}


def _joint(tasks: list[Task], seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All tasks at once; with heads, all ten classes in one network, of which a task compares its two."""
    split = settings["kind"] == "split"
    x = torch.cat([task[0] for task in tasks])
    y = torch.cat([task[1] + (2 * number if split else 0) for number, task in enumerate(tasks)])
    net = _seeded(mlp(x.shape[1], 10, units=settings["units"], layers=2), seed)
    method = PointEstimate(net, "categorical", prior=None, seed=seed)
    method.fit((x, y), **_plan(settings, seed) | {"epochs": settings["joint_epochs"]})
    row = []
    for number, (_, _, xt, yt) in enumerate(tasks):
        probs = method.predict(xt).probs
        probs = probs[:, 2 * number : 2 * number + 2] if split else probs
        row.append(float((probs.argmax(1) == yt).double().mean()))
    return {"accuracy": [row]}


_LEARN = {"posterior": _posterior, "ewc": _ewc, "fine-tuned": _fine_tuned, "joint": _joint}


class _Heads:
    """The last layers of plain networks, where each task has its own."""

    def __init__(self, own: bool) -> None:
        self.own = own
        self.kept: list[Tensor] = []

    def begin(self, net: Any) -> None:
        """A new last layer, initialised by torch."""
        if self.own:
            with torch.random.fork_rng():
                torch.manual_seed(len(self.kept))
                net[-1].reset_parameters()

    def places(self, method: PointEstimate) -> Tensor:
        last = method.network.places[-2:]
        return torch.cat([torch.arange(place.start, place.stop) for place in last]).to(method.theta.device)

    def keep(self, method: PointEstimate) -> None:
        if self.own:
            self.kept.append(method.theta.detach()[self.places(method)].clone())

    def of(self, method: PointEstimate, task: int) -> PointEstimate:
        """The method with the head of a task."""
        if self.own:
            with torch.no_grad():
                method.theta[self.places(method)] = self.kept[task]
        return method


def _fisher(method: PointEstimate, x: Tensor, seed: int) -> Tensor:
    """The diagonal of the Fisher information of one example, with labels drawn from the predictions, `[P]`."""
    net: Any = method.network.module(method.theta.detach().cpu()).to(x.device)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:5000].to(x.device)
    squares = {name: torch.zeros_like(parameter) for name, parameter in net.named_parameters()}
    names = {layer: name for name, layer in net.named_modules() if isinstance(layer, torch.nn.Linear)}
    inputs: dict[Any, Tensor] = {}
    outputs: dict[Any, Tensor] = {}

    def remember(layer: Any, given: Any, result: Tensor) -> None:
        inputs[layer], outputs[layer] = given[0], result

    hooks = [layer.register_forward_hook(remember) for layer in names]
    generator = torch.Generator(x.device).manual_seed(seed)
    for part in rows.split(1000):
        log_probs = net(x[part]).log_softmax(1)
        drawn = torch.multinomial(log_probs.detach().exp(), 1, generator=generator)
        layers = list(names)
        slopes = torch.autograd.grad(log_probs.gather(1, drawn).sum(), [outputs[layer] for layer in layers])
        for layer, slope in zip(layers, slopes, strict=True):
            # The gradient of an example is an outer product: so is its square.
            squares[f"{names[layer]}.weight"] += slope.square().T @ inputs[layer].square()
            squares[f"{names[layer]}.bias"] += slope.square().sum(0)
    for hook in hooks:
        hook.remove()
    fisher = torch.zeros(method.network.size, device=x.device)
    for place in method.network.places:
        fisher[place.start : place.stop] = squares[place.name].detach().reshape(-1) / len(rows)
    return fisher


def _network(tasks: list[Task], settings: Mapping[str, Any], seed: int) -> Any:
    outputs = 2 if settings["kind"] == "split" else 10
    return _seeded(mlp(tasks[0][0].shape[1], outputs, units=settings["units"], layers=2), seed)


def _seeded(net: Any, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                layer.reset_parameters()
    return net


def _plan(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {
        "epochs": settings["epochs"],
        "batch_size": settings["batch_size"],
        "learning_rate": settings["rate"],
        "schedule": "cosine",
        "device": settings["device"],
        "seed": seed,
        "compiled": False,
        "progress": False,
    }


def _accuracy(predictive: Any, y: Tensor) -> float:
    return float((predictive.labels == y).double().mean())


def _pair(x: Tensor, y: Tensor, first: int, second: int) -> tuple[Tensor, Tensor]:
    rows = (y == first) | (y == second)
    return x[rows], (y[rows] == second).long()


@lru_cache(1)
def _digits(name: str) -> Task:
    """Training and test images, flat."""
    found = load(name).prepare(None)
    return (
        found.x_train.flatten(1).float(),
        found.y_train.long(),
        found.x_test.flatten(1).float(),
        found.y_test.long(),
    )
