"""Training by a recipe: a new run, or the rest of an interrupted one. A failure leaves nothing half written."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bayesify import files, runs
from bayesify.data import Column
from bayesify.errors import RunError, TrainingError
from bayesify.files import plain
from bayesify.launch import is_first_process
from bayesify.methods import Method
from bayesify.methods.auto_table import TRAINING_SHARE
from bayesify.methods.cards import CARDS
from bayesify.workflows.auto.held_out import recalibrated
from bayesify.workflows.auto.recipe_choice import resolve
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.load import load_run, recipe_of, steps_done, training_state
from bayesify.workflows.prepare import open_for, prepare_data
from bayesify.workflows.recipe import AUTO, Recipe

# More than any machine has: a larger number of threads would end the process.
_MOST_THREADS = 4096


class InterruptedTrainingError(Exception):
    """Training was interrupted.

    Args:
        run: the folder with a checkpoint, or None if there was none yet.
        step: the training step of the checkpoint.

    """

    def __init__(self, run: Path | None, step: int = 0) -> None:
        super().__init__("interrupted")
        self.run, self.step = run, step


@dataclass(frozen=True)
class Trained:
    """A trained run: the method, its folder, and the notes on its data."""

    method: Method
    run: Path
    notes: dict[str, Any]


def train(
    recipe: Recipe, out: Path, *, overwrite: bool = False, progress: bool = True, compiled: bool | None = None
) -> Trained:
    """Train by a recipe and save the run.

    Args:
        recipe: the settings.
        out: the folder of the run.
        overwrite: replace a run that is already there.
        progress: show a progress bar (never when the output is not a terminal).
        compiled: compile the training step; None decides by how long training would take.

    Returns:
        The trained run.

    Raises:
        InterruptedTrainingError: on Ctrl-C; the checkpoint stays.
        RunError: the folder cannot be used.
        TrainingError: training diverged.

    Examples:
        >>> recipe = Recipe(data="moons", method="point", epochs=2)
        >>> trained = train(recipe, Path("runs/moons"), progress=False)
        >>> trained.notes["examples"]["train"]
        700

    """
    began = time.perf_counter()
    check_device(recipe.device)
    prepared = prepare_data(recipe)
    allowed, reason, recalibrate = recipe.time, None, False
    if recipe.method == AUTO:
        resolved = resolve(recipe, prepared)
        recipe, prepared, reason = resolved.recipe, resolved.data, resolved.reason
        recalibrate = resolved.recalibrate
    recipe = with_defaults(recipe, prepared)
    method = make_method(recipe, prepared)
    if reason is not None:
        method.chosen = reason
        if progress and sys.stderr.isatty():
            print(reason, file=sys.stderr)
    if allowed is not None and not CARDS[recipe.method].collects:
        method.deadline = began + TRAINING_SHARE * allowed
    settings = fit_settings(recipe, len(prepared.train[0]))
    with no_empty_folders(out), _clean_up(out):
        method.fit(
            prepared.train,
            validation=prepared.validation,
            progress=progress,
            run=out,
            overwrite=overwrite,
            compiled=compiled,
            **settings,
        )
    method.deadline = None  # of this fit
    if recalibrate and prepared.validation is not None:
        recalibrated(method, prepared.validation, out)
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
    """Finish an interrupted run, to the same bits as without the interruption, or extend it.

    Args:
        run: the folder.
        extend: further epochs (for hmc: further draws of each chain).
        data: the new place of the run's data.
        network: `module:factory` of the user's network.
        device: as torch names it; None is that of the run.
        progress: show a progress bar (never when the output is not a terminal).

    Returns:
        The trained run.

    Raises:
        InterruptedTrainingError: on Ctrl-C; the checkpoint stays.
        RunError: the run cannot be resumed, or its data has changed.

    """
    config = runs.read_config(run)
    recipe = recipe_of(config, run, data)
    check_device(device or recipe.device)
    # The number of threads decides the order of sums, and so their last bit.
    torch.set_num_threads(_threads(config, run))
    with _errors_only():
        method = load_run(run, network, unfinished=True)
    # The columns of the run, not those that a later version would find in the same table.
    columns = tuple(map(Column.from_dict, (config["data"].get("preparation") or {}).get("columns") or ()))
    prepared = prepare_data(recipe, open_for(recipe, columns or None))
    if prepared.notes["fingerprint"] != config["data"].get("fingerprint"):
        raise RunError(f"{recipe.data} is not the data that {run} was trained on: its content has changed")
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


def _threads(config: dict[str, Any], run: Path) -> int:
    """The number of threads that a run was trained with."""
    threads = config.get("threads") or torch.get_num_threads()
    if not 1 <= threads <= _MOST_THREADS:
        raise RunError(f"{run / runs.CONFIG} is damaged: threads must be from 1 to {_MOST_THREADS}, got {threads}")
    return int(threads)


def check_device(name: str) -> torch.device:
    """The torch device of a name.

    Args:
        name: as torch names it: `cpu`, `cuda`, `cuda:1`, `mps`.

    Returns:
        The device.

    Raises:
        ValueError: this machine does not have it.

    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        available = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        reason = str(problem).strip().splitlines()[0]
        raise ValueError(f"cannot use device {name!r} ({reason}); available: {', '.join(available)}") from None
    return device


def write_metrics(run: Path, metrics: dict[str, Any]) -> None:
    """Write scores to the run's `metrics.json`; values that JSON cannot hold, such as an infinite NLL, become null."""
    if not is_first_process():
        return
    files.write_json(run / runs.METRICS, plain(metrics))


@contextmanager
def no_empty_folders(*folders: Path) -> Iterator[None]:
    """Remove the folders that were created for runs that failed before training began."""
    parents = dict.fromkeys(parent for folder in folders for parent in folder.parents)
    new = [folder for folder in (*folders, *parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in new if is_first_process() else ():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


@contextmanager
def claimed(*folders: Path, overwrite: bool) -> Iterator[None]:
    """Check and claim folders before several runs are trained into them."""
    with no_empty_folders(*folders):
        for folder in folders:
            runs.claim(folder, overwrite=overwrite)
        yield


@contextmanager
def _errors_only() -> Iterator[None]:
    """Hide the warning that a run was interrupted from a user who resumes it."""
    logger = logging.getLogger("bayesify")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _clean_up(out: Path) -> Iterator[None]:
    """After an interrupt or a failure, leave a run with a checkpoint, or nothing."""
    try:
        yield
    except KeyboardInterrupt:
        if not (out / "checkpoint").is_dir():
            raise InterruptedTrainingError(None) from None
        raise InterruptedTrainingError(out, steps_done(out)) from None
    except TrainingError:
        # There is no finished epoch to resume from, so the folder must be free for the next attempt.
        if is_first_process() and (out / "checkpoint").is_dir() and not training_state(out).get("history"):
            runs.clear(out)
            for name in (runs.CONFIG, runs.MODEL):
                (out / name).unlink(missing_ok=True)
        raise
