"""Carrying a recipe out: a new run, or the rest of an interrupted one; a failure leaves nothing half written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bayesify import files, runs
from bayesify.errors import RunError, TrainingError
from bayesify.files import plain
from bayesify.methods import Method, saving
from bayesify.runs import checkpoint
from bayesify.workflows.build import fit_settings, make_method, suited, user_factory
from bayesify.workflows.prepare import gather
from bayesify.workflows.recipe import Recipe, make_recipe, settings_of_run


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
    material = gather(recipe)
    recipe = suited(recipe, material)
    method = make_method(recipe, material)
    settings = fit_settings(recipe, len(material.train[0]))
    with claimed(out, overwrite=overwrite), _kept(out):
        method.fit(
            material.train, validation=material.validation, progress=progress, run=out, overwrite=True, **settings
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
        method = rebuild(config, run, network)
    material = gather(recipe)
    if material.notes["fingerprint"] != config["data"].get("fingerprint"):
        raise RunError(f"{recipe.data} is not the data that {run} was trained on (its content has changed)")
    try:
        method.resume(
            material.train,
            run,
            validation=material.validation,
            extend=extend,
            device=device or recipe.device,
            progress=progress,
        )
    except KeyboardInterrupt:
        raise InterruptedTrainingError(run, steps_done(run)) from None
    return Trained(method, run, method.notes)


def load(run: Path, network: str | None = None) -> Method:
    """The method of a run that is complete: one that was stopped still holds the weights it started from."""
    config = runs.read_config(run)
    stopped = None
    # What is wrong with a checkpoint matters to who wants to go on from it, not to who asks the model.
    with suppress(RunError):
        stopped = None if is_complete(run) else steps_done(run)
    if stopped is not None:
        raise RunError(f"{run} was stopped in training, after step {stopped}: bayesify train --resume {run}")
    return rebuild(config, run, network)


def rebuild(config: dict[str, Any], run: Path, network: str | None = None) -> Method:
    """The method of a run; code of the user's is run only if they name it, never because a folder does."""
    about = config.get("data") or {}
    if config.get("output") == saving.OWN_FUNCTION:
        raise RunError(f"{run} picks its network's output by a function of yours: use it from Python, bayesify.load")
    if network is None:
        if config.get("network") is None:
            named = about.get("factory") or "module:factory"
            raise RunError(f"the network in {run} is made by code of yours: name it with --network {named}")
        return saving.load(run)
    shapes = config.get("input_shapes") or [None]
    shape = None if shapes[0] is None else tuple(shapes[0])
    outputs = about.get("outputs") or (config.get("likelihood") or {}).get("classes")
    return saving.load(run, network=user_factory(network, shape, outputs))


def recipe_of(config: dict[str, Any], run: Path, data: str | None = None) -> Recipe:
    """The recipe that a run was made by; `data` says where its data is now."""
    settings = settings_of_run(config, str(run))
    return make_recipe(settings | ({} if data is None else {"data": data}), {})


def steps_done(run: Path) -> int:
    """How many steps the checkpoint of a run has seen."""
    return int(_state(run)["progress"]["step"])


def is_complete(run: Path) -> bool:
    """Whether nothing of the run's plan is left to do."""
    if not runs.read_config(run).get("complete", True):
        return False
    if not (run / "checkpoint").is_dir():
        raise RunError(f"{run} has no checkpoint to go on from: it was pruned, compared or saved without one")
    state = _state(run)
    epochs, records = state["plan"].get("epochs"), state.get("history") or []
    return bool(state["progress"].get("done")) or bool(epochs and records and records[-1]["epoch"] >= epochs)


def _state(run: Path) -> dict[str, Any]:
    state: dict[str, Any] = checkpoint.read(run / "checkpoint" / "state.safetensors")[1]
    if not {"plan", "progress"} <= set(state):
        raise RunError(f"the checkpoint in {run} was written by another version")
    return state


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
def claimed(*folders: Path, overwrite: bool) -> Iterator[None]:
    """Folders for new runs; those made for something that never came about are taken away again."""
    parents = dict.fromkeys(parent for folder in folders for parent in folder.parents)
    new = [folder for folder in (*folders, *parents) if not folder.exists()]
    try:
        for folder in folders:
            runs.claim(folder, overwrite=overwrite)
        yield
    except BaseException:
        for folder in new:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


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
        if (out / "checkpoint").is_dir() and not _state(out).get("history"):
            runs.clear(out)
            for name in (runs.CONFIG, runs.MODEL):
                (out / name).unlink(missing_ok=True)
        raise
