"""One seed of the comparison with HMC: its data, every method fitted to them, and how far each is from the reference.

HMC is run first, and judged by its own diagnosis; then each method is fitted with the settings of `candidates` and its
predictive is compared with HMC's (`bayesify.evaluation.distance`). The floor is one half of the chains against the other.

Everything is kept as it is done: a run folder for each fit, its scores beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify import runs
from bayesify.data import DataSet, load
from bayesify.data.dataset import train_and_test_rows
from bayesify.methods import HMC, Method, saving
from bayesify.training.examples import take
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare.hmc_reference import Truth, sample_until_converged
from bayesify.workflows.compare.hmc_settings import REFERENCE, SETUPS, RecipeCandidate, Setup
from bayesify.workflows.prepare import PreparedData, open_for, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import write_metrics


def data_of_seed(recipe: Recipe, seed: int) -> PreparedData:
    """The data of a seed: generated with it, or cut or split by it."""
    setup = SETUPS.get(recipe.data)
    if setup is not None and setup.train is None:
        return prepare_data(recipe, load(recipe.data, None, seed=seed, **setup.options))
    if setup is not None:
        return prepare_data(recipe, _cut(open_for(recipe), setup, seed))
    return prepare_data(replace(recipe, split=seed if recipe.split is None else recipe.split))


def scores_of_seed(
    candidates: Sequence[RecipeCandidate],
    recipes: Mapping[str, Recipe],
    prepared: PreparedData,
    folder: Path,
    seed: int,
    draws: int,
    *,
    progress: bool,
) -> dict[str, dict[str, Any]]:
    """The scores of every method on one data set, by label; those that are there are read."""
    scores: dict[str, dict[str, Any]] = {}
    truth: Truth | None = None
    for one in candidates:
        run = folder / one.slug
        known = _read(run)
        if known is not None and "distance" in known:
            scores[one.label] = known
            continue
        recipe = replace(recipes[one.label], seed=seed)
        method, seconds = _fit(one, recipe, prepared, run, progress=progress)
        if isinstance(method, HMC):
            truth = Truth.of(method, prepared)
            found = truth.scores(method, prepared, draws)
        else:
            if truth is None:
                reference = saving.load(folder / REFERENCE)
                assert isinstance(reference, HMC)
                truth = Truth.of(reference.to(recipe.device), prepared)
            found = truth.distances(method, prepared, draws, seed)
        scores[one.label] = {"method": one.method, "seconds": seconds, **found}
        write_metrics(run, scores[one.label])
    return scores


def _cut(raw: DataSet, setup: Setup, seed: int) -> DataSet:
    train = train_and_test_rows(len(raw.x_train), int(setup.train or 0), seed, raw.y_train)[1]
    test = train_and_test_rows(len(raw.x_test), int(setup.test or 0), seed, raw.y_test)[1]
    return replace(
        raw,
        x_train=raw.x_train[train],
        y_train=raw.y_train[train],
        x_test=raw.x_test[test],
        y_test=raw.y_test[test],
        train_rows=train,
        test_rows=test,
    )


def _fit(
    one: RecipeCandidate, recipe: Recipe, prepared: PreparedData, run: Path, *, progress: bool
) -> tuple[Method, float]:
    """A method fitted by its recipe, or what an interruption left of it finished; and the seconds that it took."""
    examples = len(prepared.train[0])
    recipe = with_defaults(recipe, prepared)
    if recipe.method != REFERENCE and recipe.epochs is None:
        batches = -(-examples // recipe.batch_size)
        recipe = replace(recipe, epochs=-(-int(one.settings["steps"]) // batches))
    settings = fit_settings(recipe, examples)
    if "checkpoint_every" in settings:
        settings["checkpoint_every"] = max(1, settings["epochs"] // 10)
    began, before = time.perf_counter(), 0.0
    if (run / runs.CONFIG).is_file() and (run / runs.MODEL).is_file():
        method = saving.load(run).to(recipe.device)
        before = float((_read(run) or {}).get("seconds", sum(method.history["seconds"])))
        if not method.complete:
            method.resume(prepared.train, run, validation=prepared.validation, device=recipe.device, progress=progress)
    else:
        _warm_up(recipe, prepared, settings)
        method = make_method(recipe, prepared)
        began = time.perf_counter()
        method.fit(
            prepared.train, validation=prepared.validation, progress=progress, run=run, overwrite=True, **settings
        )
    if isinstance(method, HMC):
        sample_until_converged(method, prepared, run, recipe.options.get("samples", 500), progress=progress)
    seconds = before + time.perf_counter() - began
    write_metrics(run, {"seconds": seconds})
    return method, seconds


def _warm_up(recipe: Recipe, prepared: PreparedData, settings: Mapping[str, Any]) -> None:
    """A few steps that nobody times: what is loaded on first use would be charged to whoever comes first."""
    if recipe.method != REFERENCE:
        few = take(prepared.train[0], slice(recipe.batch_size)), take(prepared.train[1], slice(recipe.batch_size))
        make_method(recipe, prepared).fit(
            few, progress=False, **{**settings, "epochs": 4, "patience": None, "keep": "last"}
        )


def _read(run: Path) -> dict[str, Any] | None:
    """What is written beside a fit: its seconds and, once it has been compared, its scores."""
    try:
        found: dict[str, Any] = json.loads((run / runs.METRICS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found
