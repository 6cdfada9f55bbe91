"""Training of an ensemble or of HMC in slices: some members or chains each, wherever an engine runs them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify import files, runs
from bayesify.errors import RunError
from bayesify.jobs import Engine, Part, UnfinishedError, run_parts
from bayesify.methods import Ensemble, Method, saving, slices
from bayesify.training.warnings import without_warnings
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.load import load_run
from bayesify.workflows.prepare import PreparedData, prepare_data
from bayesify.workflows.recipe import AUTO, Recipe
from bayesify.workflows.train import Trained, check_device, no_empty_folders

QUESTION, DONE = "question.json", "slice.json"


def train_in_slices(
    recipe: Recipe, out: Path, count: int, engine: Engine, *, overwrite: bool = False, progress: bool = True
) -> Trained:
    """Train the members of an ensemble or the chains of HMC in slices, and save them as one run.

    The result depends on the number of slices (an ensemble's to rounding), not on the engine.

    Args:
        recipe: the settings, with the method `ensemble` or `hmc`.
        out: the folder of the run; slices of the same training that are beside it, in `OUT.slices`, are used.
        count: the number of slices.
        engine: where they are trained.
        overwrite: replace a run that is already there.
        progress: show a progress bar (never when the output is not a terminal).

    Returns:
        The trained run.

    Raises:
        RunError: the folder cannot be used.
        UnfinishedError: slices are left to other shares of the engine.
        ValueError: the method cannot be trained in slices.

    """
    if engine.here:
        check_device(recipe.device)
    if recipe.method == AUTO:
        raise ValueError("--slices is for ensemble and hmc: name one with --method")
    if recipe.patience is not None or recipe.keep != "last":
        raise ValueError("patience and keep judge the whole ensemble, slices are trained apart: leave them out")
    prepared = prepare_data(recipe)
    recipe = with_defaults(recipe, prepared)
    whole = make_method(recipe, prepared)
    ranges = slices.bounds(whole, count)
    # Beside the run: its folder holds a whole run or nothing.
    place = out.with_name(f"{out.name}.slices")
    with no_empty_folders(out):
        runs.claim(out, overwrite=overwrite)
        _claim(place, recipe, prepared, len(ranges), overwrite=overwrite)
        parts = [
            Part(place / f"slice-{index}", train_slice, (index, numbers, progress and engine.inside), DONE)
            for index, numbers in enumerate(ranges)
        ]
        missing = run_parts(parts, engine, shared=(recipe, prepared), unit="slice", progress=progress)
        if missing:
            raise UnfinishedError(len(missing), len(parts))
        own = recipe.network if ":" in recipe.network else None
        slices.join(whole, [load_run(part.folder, own) for part in parts])
        whole.finish(prepared.train, device=recipe.device)
        if overwrite:
            runs.clear(out)
        whole.save(out)
        shutil.rmtree(place)
    return Trained(whole, out, whole.notes)


def train_slice(
    folder: Path, recipe: Recipe, prepared: PreparedData, index: int, numbers: range, progress: bool
) -> None:
    """Train one slice and save it.

    Args:
        folder: of the slice.
        recipe: the settings of the whole, with its defaults.
        prepared: the data.
        index: of the slice.
        numbers: of its members or chains.
        progress: show a progress bar.

    """
    method = _slice(recipe, prepared, numbers)
    settings: dict[str, Any] = fit_settings(recipe, len(prepared.train[0]))
    settings["seed"] = slices.seed_of(method, recipe.seed, index)
    for name in ("checkpoint_every", "run"):
        settings.pop(name, None)
    # The whole is judged, not its slices.
    with without_warnings():
        method.fit(prepared.train, progress=progress, **settings)
    method.to("cpu")
    saving.save(method, folder)
    files.write_json(folder / DONE, {"first": numbers.start, "count": len(numbers)})


def _slice(recipe: Recipe, prepared: PreparedData, numbers: range) -> Method:
    if recipe.method == Ensemble.name:
        method = make_method(recipe, prepared)
        assert isinstance(method, Ensemble)
        method.keep_members(numbers)
        return method
    return make_method(replace(recipe, options={**recipe.options, "chains": len(numbers)}), prepared)


def _claim(place: Path, recipe: Recipe, prepared: PreparedData, count: int, *, overwrite: bool) -> None:
    """Make a folder that of the slices of this training; those of the same one stay."""
    file = place / QUESTION
    settings = {**recipe.to_dict(), "device": None}
    asked = {"recipe": settings, "fingerprint": prepared.notes["fingerprint"], "slices": count}
    question = json.loads(json.dumps(files.plain(asked)))
    if file.is_file() and json.loads(file.read_text(encoding="utf-8")) != question:
        if not overwrite:
            raise RunError(f"{place} holds slices of another training: delete it, or use --overwrite")
        shutil.rmtree(place)
    files.write_json(file, question)
