"""Classifiers of pictures that never saw one class: the four of study C, trained with every seed, scored once.

    plain        one network, its answer is one draw
    ensemble     five of them from different starts
    dropout      dropout that stays on when answering (Gal and Ghahramani 2016)
    variational  a Gaussian for every weight

A budget is counted in example-gradients: an ensemble of five has a fifth of the epochs for each member. All seeds of a
kind train at once: variational networks as a fleet, the others as members of one large ensemble that is then taken
apart. Every picture of the unseen class counts as wrong in a filter curve: none of the classes to choose from is it.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import metrics
from bayesify.evaluation.selective import curve
from bayesify.likelihoods import Categorical
from bayesify.methods import Ensemble, MCDropout, Method, PointEstimate
from bayesify.predictive import Predictive
from bayesify.workflows.build import make_network
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe, make_recipe
from bayesify_studies.experiments.framework.examples import Pair, first
from bayesify_studies.experiments.framework.fleets import Setting, said, trained_fleet
from bayesify_studies.experiments.framework.work import Work

KINDS = {
    "plain": "plain network",
    "ensemble": "ensemble of 5",
    "dropout": "MC dropout",
    "variational": "variational",
}
MEMBERS = 5
# Shares of all test pictures, those of the unseen class among them: the study's 1, 2, 3, 5 and 8 thousand of 10,000.
SHARES = (0.1, 0.2, 0.3, 0.5, 0.8)
CURVE = tuple(round(0.025 * n, 3) for n in range(2, 41))
SCORES = ("entropy", "confidence", "epistemic")
BINS = 24

Task = Mapping[str, Any]


@dataclass(frozen=True)
class Pictures:
    """Prepared examples; `everything` is training and validation together."""

    train: Pair
    validation: Pair
    test: Pair
    unknown: Tensor
    class_names: tuple[str, ...]

    @property
    def everything(self) -> Pair:
        x, y = (torch.cat(parts) for parts in zip(self.train, self.validation, strict=True))
        return x, y


def pictures(task: Task, device: str = "cpu") -> Pictures:
    """A task's data without its unseen class, as many as it says."""
    words = (task["data"], task["unseen"], task["network"], task["pixels"])
    found = _pictures(*words, task["validation"], task["examples"], task["tested"])
    train, validation, test = ((x.to(device), y.to(device)) for x, y in (found.train, found.validation, found.test))
    return Pictures(train, validation, test, found.unknown.to(device), found.class_names)


@lru_cache(maxsize=1)
def _pictures(
    data: str, unseen: str, network: str, pixels: str, validation: float, examples: int | None, tested: int | None
) -> Pictures:
    recipe = Recipe(data=data, withhold=(unseen,), network=network, normalise=pixels, validation=validation)
    found = prepare_data(recipe)
    assert found.validation is not None
    assert found.unknown is not None
    held = None if examples is None else round(examples * validation / (1 - validation))
    unknown = None if tested is None else -(-tested // (len(found.class_names) + 1))
    known = None if tested is None or unknown is None else tested - unknown
    return Pictures(
        first(found.train, examples),
        first(found.validation, held),
        first(found.test, known),
        found.unknown[:unknown],
        found.class_names,
    )


def choose(work: Work, task: Task, home: str, kind: str, settings: Sequence[Setting]) -> dict[str, Any]:
    """Every setting of a kind by its NLL on validation, one seed each, and the best one's number."""
    data = pictures(task, work.device)
    methods: list[Method] = []
    if kind == "variational":
        network, seeds = _network(task, data, None), [0] * len(settings)
        classes, start = len(data.class_names), _start(task)
        methods += trained_fleet(work, f"{home}-chosen", network, classes, settings, seeds, data.train, start=start)
    else:
        for number, setting in enumerate(settings):
            methods += _trained(work, f"{home}-chosen/{number}", task, kind, setting, range(1), data, data.train)
    rows = []
    x, y = data.validation
    for method in methods:
        answer = method.predict(x, draws=_draws(kind, task))
        rows.append({"nll": -float(answer.log_prob(y).double().mean()), "accuracy": metrics.accuracy(answer.probs, y)})
    shutil.rmtree(work.folder / "runs" / f"{home}-chosen", ignore_errors=True)
    best = min(range(len(rows)), key=lambda number: rows[number]["nll"])
    return {"rows": rows, "best": best, "chosen": dict(settings[best])}


def on_validation(work: Work, task: Task, kind: str, setting: Setting) -> list[float]:
    """The NLL of a setting on validation, seed by seed."""
    data, home = pictures(task, work.device), f"validated-{kind}-{said(setting)}".replace(" ", "-")
    fitted = _trained(work, home, task, kind, setting, work.seeds, data, data.train)
    x, y = data.validation
    found = [-float(one.predict(x, draws=_draws(kind, task)).log_prob(y).double().mean()) for one in fitted]
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    return found


def cell(work: Work, task: Task, home: str, kind: str, setting: Setting, *, everything: bool = False) -> dict[str, Any]:
    """A kind with every seed of the preset: scores by seed, and what the first says of two pictures."""
    data = pictures(task, work.device)
    fitted = _trained(work, home, task, kind, setting, work.seeds, data, data.everything if everything else data.train)
    seeds, pictured = [], {}
    for number, method in enumerate(fitted):
        known, unknown = (method.predict(x, draws=_draws(kind, task)) for x in (data.test[0], data.unknown))
        seeds.append(scores(known, unknown, data.test[1]))
        if number == 0:
            draws = (answer[0].draw_probs[:, 0].double().cpu() for answer in (known, unknown))
            pictured = {name: _rounded(one) for name, one in zip(("known", "unknown"), draws, strict=True)}
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    count = len(data.everything[1]) if everything else len(data.train[1])
    epochs = setting["epochs"] * (MEMBERS if kind == "ensemble" else 1)
    return {"seeds": seeds, "pictured": pictured, "trained_on": count, "gradients": count * epochs}


def scores(known: Predictive, unknown: Predictive, y: Tensor) -> dict[str, Any]:
    """Accuracy, NLL and calibration on known classes; filter curves of all pictures; how the unseen class is told."""
    wrong = torch.cat(((known.labels != y).double(), torch.ones(len(unknown), dtype=torch.float64, device=y.device)))
    by = {name: [-answer.certainty(name).double().cpu() for answer in (known, unknown)] for name in SCORES}
    filtered = curve(-torch.cat(by["confidence"]), wrong.cpu())
    edges = np.linspace(0, math.log(known.probs.shape[-1]) + 1e-6, BINS + 1)
    return {
        "accuracy": metrics.accuracy(known.probs, y),
        "nll": -float(known.log_prob(y).double().mean()),
        "ece": metrics.expected_calibration_error(known.probs, y),
        "filter": [filtered.accuracy_at(share) for share in SHARES],
        "curve": [filtered.accuracy_at(share) for share in CURVE],
        "auroc": {name: metrics.auroc(*both) for name, both in by.items()},
        "entropy": [np.histogram(one, edges)[0].tolist() for one in by["entropy"]],
        "epistemic": [float(one.mean()) for one in by["epistemic"]],
    }


def two_pictures(task: Task) -> dict[str, Any]:
    """The first test picture of a known class and the first of the unseen one, `[channels * height, width]`."""
    data = pictures(task)
    known, unknown = data.test[0][0], data.unknown[0]
    side = math.isqrt(len(known)) if known.dim() == 1 else known.shape[-1]
    return {
        "known": _rounded(known.reshape(-1, side)),
        "unknown": _rounded(unknown.reshape(-1, side)),
        "label": data.class_names[int(data.test[1][0])],
        "class_names": list(data.class_names),
    }


def _trained(
    work: Work,
    home: str,
    task: Task,
    kind: str,
    setting: Setting,
    seeds: Sequence[int],
    data: Pictures,
    train: Pair,
) -> list[Method]:
    if kind == "variational":
        network, classes = _network(task, data, None), len(data.class_names)
        settings = [setting] * len(seeds)
        return list(trained_fleet(work, home, network, classes, settings, seeds, train, start=_start(task)))
    members = MEMBERS if kind == "ensemble" else 1
    likelihood = Categorical(classes=len(data.class_names))
    network = _network(task, data, setting["p"] if kind == "dropout" else None)

    def make() -> Ensemble:
        """The answer by 25 networks is of no use: they are five ensembles, or as many networks as there are seeds."""
        count, start = members * len(seeds), _start(task)
        return Ensemble(network, likelihood, members=count, prior=setting.get("prior"), start=start, seed=seeds[0])

    together = work.fitted(
        home,
        make,
        train,
        epochs=setting["epochs"],
        batch_size=setting["batch"],
        learning_rate=setting["rate"],
        schedule=setting["schedule"],
        seed=seeds[0],
        compiled=work.device.startswith("cuda"),
        checkpoint_every=max(1, setting["epochs"] // 5),
    )
    weights = together.weights(range(members * len(seeds)), 0)
    fitted: list[Method] = []
    for number in range(len(seeds)):
        one: PointEstimate | Ensemble
        if kind == "ensemble":
            one, own = (
                Ensemble(network, likelihood, members=members),
                weights[number * members : (number + 1) * members],
            )
        else:
            one, own = (MCDropout if kind == "dropout" else PointEstimate)(network, likelihood), weights[number]
        one.to(work.device)
        with torch.no_grad():
            one.theta.copy_(own)
        fitted.append(one.eval())
    return fitted


def _network(task: Task, data: Pictures, dropout: float | None) -> Any:
    named = {name: task[name] for name in ("network", "preset", "units", "layers") if name in task}
    recipe = make_recipe(named, {"method": "point", "dropout": dropout})
    return make_network(recipe, tuple(data.train[0].shape[1:]), len(data.class_names))


def _start(task: Task) -> str:
    return str(task.get("start", "fresh"))


def _draws(kind: str, task: Task) -> int:
    return {"plain": 1, "ensemble": MEMBERS}.get(kind, int(task["draws"]))


def _rounded(values: Tensor) -> Any:
    return [[round(number, 4) for number in row] for row in values.tolist()]
