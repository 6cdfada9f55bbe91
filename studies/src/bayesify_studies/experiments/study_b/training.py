"""Study B's networks (Koca and Dittmann, Bayes by Backprop) and their rivals: trained, chosen, then tested once.

A way of training has a list of settings for each kind of network. Where there is something to choose, each setting is
trained on five sixths of the training data and scored on the last sixth; the best is trained anew on all of it with
every seed, and only that is tested. The study's loss sums a batch, ours averages it: its SGD step of 1e-3 at batches of
128 is 0.128 here.

Seeds of one architecture train together: variational ones as a fleet, the others as members of an ensemble.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify import files, metrics, networks
from bayesify.errors import TrainingError
from bayesify.fleets import Fleet
from bayesify.likelihoods import Categorical
from bayesify.methods import Ensemble, MCDropout, Method, PointEstimate, Variational
from bayesify.plots.weights import sampled_weights
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify_studies.experiments.framework.evidence import loss_per_example
from bayesify_studies.experiments.framework.examples import first
from bayesify_studies.experiments.framework.work import Work

KINDS = {
    "plain": "plain network",
    "dropout": "dropout",
    "gaussian": "variational, N(0, 1)",
    "mixture": "variational, scale mixture",
}
WAYS = {"study": "as the study", "long": "as the study, longer", "ours": "our settings"}
BAYESIAN = ("gaussian", "mixture")
# The weights' densities are counted where the study drew them.
REACH, BINS = 0.3, 120
CURVE_POINTS, CURVE_DRAWS = 30, 10
# What networks of one fleet share; a prior's family is the first word of its text.
SHARED = ("epochs", "batch", "optimizer", "schedule", "estimator", "pixels")

Setting = dict[str, Any]
# What was found, by way, kind and units.
Parts = dict[tuple[str, str, int], dict[str, Any]]


def choose(work: Work, way: str, kind: str, units: int, settings: Sequence[Setting] | None = None) -> dict[str, Any]:
    """Every setting of a kind on validation: its error and NLL, and its error by epoch; the best one's number."""
    settings = work["ways"][way]["kinds"][kind] if settings is None else settings
    home = f"{way}-{kind}-{units}-chosen"
    if kind in BAYESIAN:
        rows = _variational_curves(work, home, settings, units)
    else:
        rows = _point_curves(work, home, kind, settings, units)
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    best = min(range(len(rows)), key=lambda number: (rows[number]["error"], rows[number]["nll"]))
    return {"way": way, "kind": kind, "units": units, "rows": rows, "best": best, "chosen": settings[best]}


def final(work: Work, way: str, kind: str, units: int, setting: Setting) -> dict[str, Any]:
    """One setting on all training data with every seed, on the test part: scores by seed, and who errs where."""
    home = f"{way}-{kind}-{units}-final"
    data = images(work, setting, held_out=False)
    x, y = data["test"]
    found: dict[str, Any] = {"way": way, "kind": kind, "units": units, "setting": setting, "tested": len(y)}
    methods: Sequence[Method]
    if kind in BAYESIAN:
        try:
            methods, told = _variational(work, home, setting, units, data)
        except TrainingError:
            # The study's steps are long: all of its networks may be lost, which is a result as well.
            shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
            return found | {"diverged": len(work.seeds)}
        found |= told | {"elbo": [loss_per_example(method, *data["train"]) for method in methods]}
    else:
        methods = _points(work, home, kind, setting, units, data)
    for by in ("mean",) if kind == "plain" else ("mean", "draws"):
        scored = [score(method, x, y, by, work["draws"]) for method in methods]
        wrong = sum(one.pop("wrong") for one in scored)
        # Most images are never misread: those that are, and by how many of the seeds.
        found[by] = {"seeds": scored, "wrong": {str(n): int(wrong[n]) for n in wrong.nonzero()[:, 0].tolist()}}
    if units == work["pictured"]:
        values = sampled_weights(methods[0])
        edges = np.linspace(-REACH, REACH, BINS + 1)
        found["weights"] = {
            "counts": np.histogram(values, edges)[0].tolist(),
            "count": len(values),
            "std": float(values.std()),
        }
    shutil.rmtree(work.folder / "runs" / home, ignore_errors=True)
    return found


def nine_images(work: Work) -> dict[str, Any]:
    """The first nine images of the training part, and what they are called."""
    prepared = prepare_data(Recipe(data=work["data"], normalise="none", network="mlp"))
    x, y = prepared.train[0][:9], prepared.train[1][:9]
    side = round(x.shape[1] ** 0.5)
    return {
        "pixels": x.round().to(torch.int64).reshape(-1, side, side).tolist(),
        "labels": [prepared.class_names[label] for label in y.tolist()],
    }


def images(work: Work, setting: Mapping[str, Any], *, held_out: bool) -> dict[str, Any]:
    """Training and validation or, where nothing is held out, test examples; as many as the preset says."""
    share = 1 / 6 if held_out else None
    recipe = Recipe(data=work["data"], normalise=setting["pixels"], validation=share, network="mlp")
    prepared: PreparedData = prepare_data(recipe)
    most = work["examples"]
    if held_out:
        # A choice is not even given the test part.
        assert prepared.validation is not None
        sixth = None if most is None else most // 6
        rest = None if most is None or sixth is None else most - sixth
        found = {"train": first(prepared.train, rest), "validation": first(prepared.validation, sixth)}
    else:
        found = {"train": first(prepared.train, most), "test": first(prepared.test, work["tested"])}
    return {name: (x.to(work.device), y.to(work.device)) for name, (x, y) in found.items()} | {
        "inputs": int(prepared.train[0].shape[1]),
        "classes": len(prepared.class_names),
    }


def score(method: Method, x: Tensor, y: Tensor, by: str, draws: int, seed: int = 0) -> dict[str, Any]:
    """Error, NLL and calibration of an answer by draws or by the mean weights, and which images it misreads."""
    predictive = method.predict(x, draws=draws, seed=seed, by=by)
    wrong = (predictive.probs.argmax(-1) != y).cpu()
    return {
        "error": float(wrong.double().mean()),
        "nll": -float(predictive.log_prob(y).double().mean()),
        "ece": metrics.expected_calibration_error(predictive.probs, y),
        "wrong": wrong.int(),
    }


def error(method: Method, x: Tensor, y: Tensor, draws: int) -> float:
    """The error alone, which a network that has diverged has too."""
    return float((method.predict(x, draws=draws).probs.argmax(-1) != y).double().mean())


# Variational networks: fleets.


def _variational_curves(work: Work, home: str, settings: Sequence[Setting], units: int) -> list[Any]:
    rows: dict[int, dict[str, Any]] = {}
    for numbers in _fleets(settings):
        common = settings[numbers[0]]
        data = images(work, common, held_out=True)
        methods = [network(settings[n], units, data, 0) for n in numbers]
        folder = work.folder / "runs" / home / str(numbers[0])
        curves, gone = _fit(work, folder, methods, [settings[n] for n in numbers], data)
        if gone:
            raise TrainingError(f"settings {[numbers[n] for n in gone]} diverged: choose from others")
        for number, method, curve in zip(numbers, methods, curves, strict=True):
            x, y = data["validation"]
            found = score(method, x, y, "draws", work["draws"])
            del found["wrong"]
            rows[number] = found | {"curve": curve}
    return [rows[number] for number in range(len(settings))]


def _variational(
    work: Work, home: str, setting: Setting, units: int, data: dict[str, Any]
) -> tuple[list[Variational], dict[str, Any]]:
    """The networks that are finite in the end; the study's steps are long, and not all are."""
    methods = [network(setting, units, data, seed) for seed in work.seeds]
    starts = [_facts(method) for method in methods]
    _, gone = _fit(work, work.folder / "runs" / home, methods, [setting] * len(methods), data)
    first, *rest = (number for number in range(len(methods)) if number not in gone)
    told = {"posterior": {"start": starts[first], "end": _facts(methods[first])}, "diverged": len(gone)}
    return [methods[number] for number in (first, *rest)], told


def _fit(
    work: Work, folder: Path, methods: list[Variational], settings: Sequence[Setting], data: dict[str, Any]
) -> tuple[list[list[list[float]]], list[int]]:
    """Train a fleet; its validation errors `[networks][points][epoch, error]`, and which networks diverged.

    The errors are kept beside the checkpoints.
    """
    common, fleet, file = settings[0], Fleet(methods), folder / "curves.json"
    epochs = common["epochs"]
    every = -(-epochs // CURVE_POINTS)
    seen: dict[str, list[float]] = json.loads(file.read_text()) if file.is_file() else {}

    def watch(epoch: int, _: list[float]) -> None:
        if "validation" not in data or (epoch % every and epoch not in {1, epochs}):
            return
        x, y = data["validation"]
        seen[str(epoch)] = [error(one, x, y, CURVE_DRAWS) for one in fleet.unstack()]
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(file, seen)

    fleet.fit(
        data["train"],
        learning_rates=[one["rate"] for one in settings],
        kl=[one.get("kl", "uniform") for one in settings],
        epochs=epochs,
        batch_size=common["batch"],
        optimizer=common["optimizer"],
        schedule=common["schedule"],
        device=work.device,
        precision=work.precision,
        run=folder,
        checkpoint_every=max(1, epochs // 5),
        may_diverge=True,
        progress=work.progress,
        on_epoch=watch,
    )
    ordered = sorted(seen.items(), key=lambda item: int(item[0]))
    curves = [[[int(epoch), errors[n]] for epoch, errors in ordered] for n in range(len(methods))]
    return curves, fleet.diverged


def _fleets(settings: Sequence[Setting]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for number, one in enumerate(settings):
        key = (*(one[name] for name in SHARED), one["prior"].partition(":")[0])
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def network(setting: Setting, units: int, data: dict[str, Any], seed: int) -> Variational:
    return Variational(
        networks.mlp(data["inputs"], data["classes"], units=units, layers=2),
        Categorical(classes=data["classes"]),
        prior=setting["prior"],
        estimator=setting["estimator"],
        start=setting["start"],
        rho=setting["rho"],
        seed=seed,
    )


def _facts(method: Variational) -> dict[str, float]:
    """How far a posterior is from its prior, and how wide it is."""
    with torch.no_grad():
        return {"kl": float(method.kl(0, 1)), "width": float(method.std.median())}


# Plain and dropout networks: members of an ensemble.


def _point_curves(work: Work, home: str, kind: str, settings: Sequence[Setting], units: int) -> list[Any]:
    rows = []
    for number, setting in enumerate(settings):
        data = images(work, setting, held_out=True)
        method = work.fitted(
            f"{home}/{number}",
            partial(_single, kind, setting, units, data),
            data["train"],
            validation=data["validation"],
            **_plan(setting),
        )
        by = "mean" if kind == "plain" else "draws"
        x, y = data["validation"]
        found = score(method, x, y, by, work["draws"])
        del found["wrong"]
        curve = [[record["epoch"], record["validation_error"]] for record in method.history.records]
        rows.append(found | {"curve": curve[:: max(1, len(curve) // CURVE_POINTS)]})
    return rows


def _points(
    work: Work, home: str, kind: str, setting: Setting, units: int, data: dict[str, Any]
) -> list[PointEstimate]:
    network = _perceptron(kind, setting, units, data)

    def make() -> Method:
        likelihood = Categorical(classes=data["classes"])
        return Ensemble(network, likelihood, members=len(work.seeds), prior=setting.get("prior"), seed=0)

    ensemble = work.fitted(home, make, data["train"], **_plan(setting))
    members = ensemble.weights(range(len(work.seeds)), 0)
    methods = []
    for weights in members:
        own = _single(kind, setting, units, data).to(work.device)
        with torch.no_grad():
            own.theta.copy_(weights)
        methods.append(own)
    return methods


def _single(kind: str, setting: Setting, units: int, data: dict[str, Any]) -> PointEstimate:
    made = MCDropout if kind == "dropout" else PointEstimate
    likelihood = Categorical(classes=data["classes"])
    return made(_perceptron(kind, setting, units, data), likelihood, prior=setting.get("prior"), start="fresh")


def _perceptron(kind: str, setting: Setting, units: int, data: dict[str, Any]) -> Any:
    rate = setting["p"] if kind == "dropout" else 0.0
    return networks.mlp(data["inputs"], data["classes"], units=units, layers=2, dropout=rate)


def _plan(setting: Setting) -> dict[str, Any]:
    epochs = setting["epochs"]
    return {
        "epochs": epochs,
        "batch_size": setting["batch"],
        "learning_rate": setting["rate"],
        "optimizer": setting["optimizer"],
        "schedule": setting["schedule"],
        "checkpoint_every": max(1, epochs // 5),
    }
