"""One fit: a problem, a method with its defaults or with a few settings of its own, and what the fit scores."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify import networks
from bayesify.evaluation import score
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.constant import constant_log_prob
from bayesify.methods import Method
from bayesify.methods.auto_table import SPEED, USUAL_GRADIENTS
from bayesify.predictive import Predictive
from bayesify.workflows.auto import Auto
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import AUTO, DRAWS, Recipe, make_recipe
from bayesify_studies.experiments.defaults.problems import PROBLEMS

# A search holds out this share of the training rows, and never sees the test rows.
HELD_OUT = 0.2
COVERAGE = 0.9
# HMC that would take this many seconds, by the count that Auto goes by, is not begun.
LONGEST_SAMPLING = 600.0


class UnaffordableError(Exception):
    """A fit that would take far too long; the message says how it was counted."""


def fitted(
    problem: str, method: str, seed: int, settings: Mapping[str, Any] | None = None, *, validate: bool = False
) -> dict[str, Any]:
    """Fit a method to a problem and score it on the test rows.

    Args:
        problem: its name.
        method: its name on the command line, or `auto`.
        seed: of the data and of everything random.
        settings: over the defaults, by the names of a recipe.
        validate: fit to four fifths of the training rows and score the others instead.

    Returns:
        Scores, warnings and seconds, as plain values.

    Raises:
        UnaffordableError: HMC would take far too long.

    """
    of = PROBLEMS[problem]
    raw = of.make(seed)
    raw = raw.hold_out(HELD_OUT, seed) if validate else raw
    began, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        # They are counted from the method.
        warnings.simplefilter("ignore")
        if method == AUTO:
            model, tested = _by_auto(raw, of.images, seed)
        else:
            recipe = make_recipe({}, {"data": "digits", "method": method, "seed": seed, **(settings or {})})
            prepared = prepare_data(recipe, raw)
            recipe = with_defaults(recipe, prepared)
            _check_affordable(recipe, prepared)
            model = make_method(recipe, prepared)
            plan = fit_settings(recipe, len(prepared.train[0]))
            model.fit(prepared.train, progress=False, compiled=False, **plan)
            tested = prepared.test[0]
        spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        prediction = model.predict(tested, draws=DRAWS)
    found: dict[str, Any] = {"used": model.name, "warnings": sorted(model.warnings), "chosen": model.chosen or ""}
    if model.checked is not None:
        # So that other thresholds of the checks can be tried without the fit.
        checked = model.checked.to_dict()
        found["checked"] = {name: checked[name] for name in ("nll", "constant_nll", "prior_nll", "score", "neighbours")}
    last = model.history.records[-1] if model.history.records else {}
    found |= {name: last[name] for name in ("r_hat", "chain_error") if last.get(name) is not None}
    return {**found, **scores(prediction, raw.y_test, raw.y_train, model.likelihood), **spent}


def scores(prediction: Predictive, targets: Tensor, known: Tensor, likelihood: Likelihood) -> dict[str, Any]:
    """What is compared: the error, the NLL, the calibration, and the same of a constant prediction.

    Args:
        prediction: for the test rows.
        targets: of the test rows.
        known: targets of the training rows.
        likelihood: of the targets.

    Returns:
        Plain values by name.

    """
    by_constant = constant_log_prob(likelihood, likelihood.prepare(known), likelihood.prepare(targets))
    assert by_constant is not None
    constant = -float(by_constant.mean())
    all_scores = score(prediction, targets).to_dict()
    if prediction.kind == "classification":
        commonest = known.bincount().argmax()
        return {
            "accuracy": all_scores["accuracy"],
            "nll": all_scores["nll"],
            "ece": all_scores["ece"],
            "constant_nll": constant,
            "constant_accuracy": float((targets == commonest).double().mean()),
            "tested": len(targets),
        }
    low, high = prediction.interval(COVERAGE)
    values = targets.double()
    inside = (values >= low.reshape(values.shape)) & (values <= high.reshape(values.shape))
    squares = (prediction.mean.double().reshape(values.shape) - values).square()
    return {
        "rmse": all_scores["rmse"],
        "mse_error": float(squares.std() / math.sqrt(len(squares))) if len(squares) > 1 else None,
        "nll": all_scores["nll"],
        "crps": all_scores["crps"],
        "coverage": float(inside.double().mean()),
        "constant_nll": constant,
        "constant_rmse": float((values - known.double().mean()).square().mean().sqrt()),
        "tested": len(targets),
    }


def _by_auto(raw: Any, of_images: bool, seed: int) -> tuple[Method, Tensor]:
    """What a newcomer writes: a table in its own units, or the usual perceptron for images."""
    likelihood = "categorical" if raw.kind == "classification" else "gaussian"
    if not of_images:
        auto = Auto(likelihood=likelihood)
        return auto.fit((raw.x_train.float(), raw.y_train), seed=seed, progress=False), raw.x_test.float()
    prepared = raw.prepare(flatten=False)
    torch.manual_seed(seed)
    size = prepared.x_train[0].numel()
    auto = Auto(networks.mlp(size, raw.classes), likelihood)
    return auto.fit((prepared.x_train, prepared.y_train), seed=seed, progress=False), prepared.x_test


def _check_affordable(recipe: Recipe, prepared: PreparedData) -> None:
    if recipe.method != "hmc":
        return
    weights = make_method(recipe, prepared).network.size
    seconds = USUAL_GRADIENTS * 4 * len(prepared.train[0]) * weights / SPEED
    if seconds > LONGEST_SAMPLING:
        raise UnaffordableError(f"sampling {weights:,} weights would take about {seconds:,.0f} s, by counting")
