"""Carrying a recipe out: a new run, or the rest of an interrupted one; a failure leaves nothing half written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bayesify import files, runs
from bayesify.errors import RunError, TrainingError
from bayesify.files import plain
from bayesify.methods import Method
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.load import load_run, recipe_of, steps_done, training_state
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import Recipe


class InterruptedTrainingError(Exception):
    """Training was stopped; `run` holds a checkpoint, or is None where there was nothing to keep yet."""

    def __init__(self, run: Path | None, step: int = 0) -> None:
        super().__init__("interrupted")
        self.run, self.step = run, step


@dataclass(frozen=True)
class Trained:
    """A run that is complete."""

    method: Method
    run: Path
    notes: dict[str, Any]


def train(recipe: Recipe, out: Path, *, overwrite: bool = False, progress: bool = True) -> Trained:
    """Train by a recipe and keep the run in `out`."""
    check_device(recipe.device)
    prepared = prepare_data(recipe)
    recipe = with_defaults(recipe, prepared)
    method = make_method(recipe, prepared)
    settings = fit_settings(recipe, len(prepared.train[0]))
    with no_empty_folders(out), _kept(out):
        method.fit(
            prepared.train,
            validation=prepared.validation,
            progress=progress,
            run=out,
            overwrite=overwrite,
            **settings,
        )
    return Trained(method, out, method.notes)


def resume(
    run: Path,
    *,
    extend: int = 0,
    data: str | None = None,
    network: str | None = None,
    device: str | None = None,
    progress: bool = True,
) -> Trained:
    """Go on with a run to the end of its plan, or `extend` epochs further, to the same bits."""
    config = runs.read_config(run)
    recipe = recipe_of(config, run, data)
    check_device(device or recipe.device)
    # The order of a sum depends on the number of threads, and with it the last bit.
    torch.set_num_threads(int(config.get("threads") or torch.get_num_threads()))
    with _quiet():
        method = load_run(run, network, unfinished=True)
    prepared = prepare_data(recipe)
    if prepared.notes["fingerprint"] != config["data"].get("fingerprint"):
        raise RunError(f"{recipe.data} is not the data that {run} was trained on (its content has changed)")
    try:
        method.resume(
            prepared.train,
            run,
            validation=prepared.validation,
            extend=extend,
            device=device or recipe.device,
            progress=progress,
        )
    except KeyboardInterrupt:
        raise InterruptedTrainingError(run, steps_done(run)) from None
    return Trained(method, run, method.notes)


def check_device(name: str) -> torch.device:
    """A device that exists here, or one line on why not."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        here = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        reason = str(problem).strip().splitlines()[0]
        raise ValueError(f"cannot use device {name!r} ({reason}); here: {', '.join(here)}") from None
    return device


def write_metrics(run: Path, metrics: dict[str, Any]) -> None:
    """Put a record of scores into the run's `metrics.json`; what JSON cannot hold, an infinite NLL say, as null."""
    files.write_json(run / runs.METRICS, plain(metrics))


@contextmanager
def no_empty_folders(*folders: Path) -> Iterator[None]:
    """Take away again the folders that were made for runs that failed before they began."""
    parents = dict.fromkeys(parent for folder in folders for parent in folder.parents)
    new = [folder for folder in (*folders, *parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in new:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


@contextmanager
def claimed(*folders: Path, overwrite: bool) -> Iterator[None]:
    """Folders that are checked before several runs are trained into them."""
    with no_empty_folders(*folders):
        for folder in folders:
            runs.claim(folder, overwrite=overwrite)
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Who resumes an interrupted run need not be told that it was interrupted."""
    logger = logging.getLogger("bayesify")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _kept(out: Path) -> Iterator[None]:
    """What an interrupt leaves: a run with a checkpoint, or nothing."""
    try:
        yield
    except KeyboardInterrupt:
        if not (out / "checkpoint").is_dir():
            raise InterruptedTrainingError(None) from None
        raise InterruptedTrainingError(out, steps_done(out)) from None
    except TrainingError:
        # Nothing was learnt that could be gone on with: nothing stays in the way of the next try.
        if (out / "checkpoint").is_dir() and not training_state(out).get("history"):
            runs.clear(out)
            for name in (runs.CONFIG, runs.MODEL):
                (out / name).unlink(missing_ok=True)
        raise
