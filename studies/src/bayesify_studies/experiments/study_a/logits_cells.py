"""The cells of study A's factorial: what is trained, how each is scored, and how long a step and an answer take."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from bayesify import metrics
from bayesify.evaluation.selective import curve
from bayesify.likelihoods import GaussianLogits
from bayesify.methods import Ensemble, Method, PointEstimate
from bayesify.workflows.build import make_likelihood, make_network
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.examples import first
from bayesify_studies.experiments.framework.work import Work

NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"network": "mlp", "units": (512,), "layers": 1},
    "cnn": {"network": "cnn", "preset": "study-e", "activation": "relu"},
}
# Plain descent as the tutorial of the time had it, 1e-3 for 20,000 steps: as long a way in the steps there are here.
OPTIMISERS = {"adam": ("adam", 1e-3), "sgd": ("sgd", 2e-3)}
HEADS = ("plain", "expected", "log_expected")
AMBIGUOUS = (1, 7)
COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

# Data, network, optimiser, head, share of swapped labels.
Cell = tuple[str, str, str, str, float]


def name_of(cell: Cell) -> str:
    """A cell's part."""
    data, network, optimiser, head, swap = cell
    return f"{data}-{network}-{optimiser}-{head}-{round(100 * swap)}"


def trained_cell(work: Work, data: str, network: str, optimiser: str, head: str, swap: float) -> dict[str, Any]:
    """Train all seeds of a cell at once and score each on the test images, whose labels are as they were."""
    recipe, prepared = material(work, data, network, head, swap)
    name, rate = OPTIMISERS[optimiser]
    likelihood = make_likelihood(recipe, prepared)
    outputs = likelihood.width(prepared.train[1])
    method = work.fitted(
        name_of((data, network, optimiser, head, swap)),
        lambda: Ensemble(
            make_network(recipe, tuple(prepared.train[0].shape[1:]), outputs), likelihood, members=len(work.seeds)
        ),
        prepared.train,
        optimizer=name,
        learning_rate=rate,
        **_settings(work),
    )
    return _scores(method, prepared)


def timed(work: Work) -> dict[str, Any]:
    """Seconds of an epoch and of answering all test images, for one network of each head, alone on the machine."""
    found: dict[str, dict[str, float]] = {"training": {}, "answering": {}}
    for head in HEADS:
        recipe, prepared = material(work, "mnist", "mlp", head, 0.0)
        likelihood = make_likelihood(recipe, prepared)
        outputs = likelihood.width(prepared.train[1])
        method = PointEstimate(make_network(recipe, (784,), outputs), likelihood)
        history = method.fit(prepared.train, device=work.device, progress=False, **_settings(work) | {"epochs": 4})
        # The first epoch loads and compiles.
        found["training"][head] = min(history["seconds"][1:])
        answers = []
        for _ in range(3):
            began = time.perf_counter()
            method.predict(prepared.test[0]).labels.cpu()
            answers.append(time.perf_counter() - began)
        found["answering"][head] = min(answers)
    return found


def _settings(work: Work) -> dict[str, Any]:
    return {name: work[name] for name in ("epochs", "batch_size", "compiled")}


def material(work: Work, data: str, network: str, head: str, swap: float) -> tuple[Recipe, PreparedData]:
    """The recipe of a cell, and its images."""
    likelihood = "categorical" if head == "plain" else f"gaussian-logits:{head},{work['samples']}"
    noise = f"{AMBIGUOUS[0]},{AMBIGUOUS[1]}={swap}" if swap else None
    recipe = Recipe(
        data=data, method="point", normalise="255", likelihood=likelihood, label_noise=noise, **NETWORKS[network]
    )
    prepared = prepare_data(recipe)
    few = replace(prepared, train=first(prepared.train, work["examples"]), test=first(prepared.test, work["test"]))
    return recipe, few


def _scores(method: Method, prepared: PreparedData) -> dict[str, Any]:
    """By seed: accuracy, NLL, accuracy by coverage; of the spread its mean and what it tells apart."""
    x, y = prepared.test
    answer = method.predict(x, draws=method.members)
    probs = answer.draw_probs.double().cpu()
    wrong = (probs.argmax(-1) != y).double()
    odd = (y.unsqueeze(-1) == torch.tensor(AMBIGUOUS)).any(-1)
    entropy = -torch.special.xlogy(probs, probs).sum(-1)
    found: dict[str, Any] = {
        "accuracy": (1 - wrong.mean(-1)).tolist(),
        "nll": [metrics.nll(one, y) for one in probs],
        "entropy_auroc": [metrics.auroc(one[~odd], one[odd]) for one in entropy],
        "by_confidence": [_curve(probs[m].amax(-1), wrong[m], "confidence") for m in range(len(probs))],
    }
    if isinstance(method.likelihood, GaussianLogits):
        spread = method.likelihood.spread(answer.outputs).mean(-1).double().cpu()
        found |= {
            "spread": spread.mean(-1).tolist(),
            "spread_ambiguous": spread[:, odd].mean(-1).tolist(),
            "spread_others": spread[:, ~odd].mean(-1).tolist(),
            "spread_auroc": [metrics.auroc(one[~odd], one[odd]) for one in spread],
            "by_spread": [_curve(spread[m], wrong[m], "spread") for m in range(len(probs))],
            "spread_by_digit": [spread[:, y == digit].mean().item() for digit in range(10)],
        }
    return found


def _curve(score: torch.Tensor, wrong: torch.Tensor, by: str) -> list[float]:
    found = curve(score, wrong, by)
    return [found.accuracy_at(share) for share in COVERAGES]
