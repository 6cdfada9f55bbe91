"""One seed of the comparison with HMC: its data, every method fitted to it, and its distance from the reference.

HMC runs first, until its chains agree. Then each method is fitted with the settings in `hmc_settings.py`, and its
predictive is compared with that of HMC (`evaluation/predictive_distance.py`). The floor is the distance between the
two halves of the chains.

Every fit is saved at once: a run folder, with its scores in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify import files, runs
from bayesify.data import DataSet, load
from bayesify.data.partition import train_and_test_rows
from bayesify.methods import HMC, Method, saving
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.compare.comparison import warm_up
from bayesify.workflows.compare.hmc_reference import Truth, sample_until_converged
from bayesify.workflows.compare.hmc_settings import REFERENCE, SETUPS, RecipeCandidate, Setup
from bayesify.workflows.prepare import PreparedData, open_for, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import write_metrics

SCORED = "scored.json"


def data_of_seed(recipe: Recipe, seed: int) -> PreparedData:
    """The data of a seed: generated, subsampled or split by it."""
    setup = SETUPS.get(recipe.data)
    if setup is not None and setup.train is None:
        return prepare_data(recipe, load(recipe.data, None, seed=seed, **setup.options))
    if setup is not None:
        return prepare_data(recipe, _subsample(open_for(recipe), setup, seed))
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
    """The scores of every method on the data of a seed, by label; those that are already in the folder are read."""
    scores: dict[str, dict[str, Any]] = {}
    truth: Truth | None = None
    for candidate in candidates:
        run = folder / candidate.slug
        saved = _read(run)
        if saved is not None and "distance" in saved:
            scores[candidate.label] = saved
            continue
        recipe = replace(recipes[candidate.label], seed=seed)
        method, seconds = _fit(candidate, recipe, prepared, run, progress=progress)
        if isinstance(method, HMC):
            truth = Truth.of(method, prepared)
            measured = truth.scores(method, prepared, draws)
        else:
            if truth is None:
                reference = saving.load(folder / REFERENCE)
                assert isinstance(reference, HMC)
                truth = Truth.of(reference.to(recipe.device), prepared)
            measured = truth.distances(method, prepared, draws, seed)
        scores[candidate.label] = {"method": candidate.method, "seconds": seconds, **measured}
        write_metrics(run, scores[candidate.label])
    return scores


def score_seed(
    folder: Path,
    candidates: Sequence[RecipeCandidate],
    recipes: Mapping[str, Recipe],
    draws: int,
    prepared: PreparedData,
    seed: int,
    progress: bool,
) -> None:
    """Compute the scores of a seed as a part of the experiment; the file `SCORED` names the methods that have them.

    Args:
        folder: of the seed.
        candidates: the methods, the reference first.
        recipes: of the methods, by label.
        draws: posterior draws per prediction.
        prepared: the data of the seed.
        seed: which.
        progress: show progress bars.

    """
    scores = scores_of_seed(candidates, recipes, prepared, folder, seed, draws, progress=progress)
    files.write_json(folder / SCORED, {"methods": sorted(scores)})


def _subsample(raw: DataSet, setup: Setup, seed: int) -> DataSet:
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
    candidate: RecipeCandidate, recipe: Recipe, prepared: PreparedData, run: Path, *, progress: bool
) -> tuple[Method, float]:
    """Fit a method by its recipe, or finish an interrupted fit; return it with the seconds that it took."""
    examples = len(prepared.train[0])
    recipe = with_defaults(recipe, prepared)
    if recipe.method != REFERENCE and recipe.epochs is None:
        batches = -(-examples // recipe.batch_size)
        recipe = replace(recipe, epochs=-(-int(candidate.settings["steps"]) // batches))
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
        if recipe.method != REFERENCE:
            warm_up(make_method(recipe, prepared), prepared.train, settings)
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


def _read(run: Path) -> dict[str, Any] | None:
    """The metrics of a fit: its seconds and, once it has been compared, its scores."""
    try:
        metrics: dict[str, Any] = json.loads((run / runs.METRICS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return metrics
