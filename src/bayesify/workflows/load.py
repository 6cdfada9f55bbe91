"""Trained runs, read for use: one way in for Python, the command line, the server and the studio.

`bayesify predict` and the server prepare the inputs they are given. In Python a network takes tensors as in training;
`bayesify.prepare` makes them from raw inputs, and `load` warns where that is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.errors import RunError
from bayesify.methods import Method, saving
from bayesify.runs import checkpoint
from bayesify.workflows.build import user_factory
from bayesify.workflows.recipe import Recipe, make_recipe, settings_of_run

logger = logging.getLogger("bayesify")


def load(
    path: str | Path,
    network: Any = None,
    device: torch.device | str = "cpu",
    output: Callable[[Any], Tensor] | None = None,
) -> Method:
    """Read a method from a run folder; of a run that was interrupted, the state of its last checkpoint.

    The method takes inputs as they were in training: `bayesify.prepare` makes them from raw ones for runs that
    `bayesify train` made, and a warning says so. Predictions are in the units of the targets. Nothing in the folder is
    ever executed.

    Args:
        path: the folder.
        network: the module, or a function that makes it, for networks that are not ours.
        device: where to put the method.
        output: the function that picks the output, where the method was made with one.

    Returns:
        The method, in evaluation mode, with its history and its plan.

    Raises:
        RunError: the folder is no run, is damaged, or needs `network` or `output`.

    Example:
        >>> folder = bnn.save("runs/mine")
        >>> bf.load(folder).predict(x, draws=5).probs.shape
        torch.Size([60, 3])

    """
    method = saving.load(path, network, device, output)
    if _changes_inputs(method.notes.get("preparation") or {}):
        logger.warning(
            "%s takes inputs that are prepared as in its training: predict(bayesify.prepare(run, raw_inputs))", path
        )
    return method


def load_run(run: Path, network: str | None = None, *, unfinished: bool = False) -> Method:
    """Read the method of a run for a command; a network of the user's is code that the command line names.

    Args:
        run: the folder.
        network: `module:factory`; code of the user's is run only if they name it, never because a folder does.
        unfinished: allow a run that was stopped in training, which holds the weights of its last checkpoint.

    """
    config = runs.read_config(run)
    stopped = None
    # What is wrong with a checkpoint matters when training goes on from it, not when the model predicts.
    with suppress(RunError):
        stopped = None if unfinished or is_complete(run) else steps_done(run)
    if stopped is not None:
        raise RunError(f"{run} was stopped in training, after step {stopped}: bayesify train --resume {run}")
    notes = config.get("data") or {}
    if config.get("output") == saving.OWN_FUNCTION:
        raise RunError(f"{run} picks its network's output by a function of yours: use it from Python, bayesify.load")
    if network is None:
        if config.get("network") is None:
            name = notes.get("factory") or "module:factory"
            raise RunError(f"the network in {run} is made by code of yours: name it with --network {name}")
        return saving.load(run)
    shapes = config.get("input_shapes") or [None]
    shape = None if shapes[0] is None else tuple(shapes[0])
    outputs = notes.get("outputs") or (config.get("likelihood") or {}).get("classes")
    return saving.load(run, network=user_factory(network, shape, outputs))


def recipe_of(config: dict[str, Any], run: Path, data: str | None = None) -> Recipe:
    """The recipe that a run was made by; `data` says where its data is now."""
    settings = settings_of_run(config, str(run))
    return make_recipe(settings | ({} if data is None else {"data": data}), {})


def steps_done(run: Path) -> int:
    """How many steps the checkpoint of a run has seen."""
    return int(training_state(run)["progress"]["step"])


def is_complete(run: Path) -> bool:
    """Whether nothing of the run's plan is left to do."""
    if not runs.read_config(run).get("complete", True):
        return False
    if not (run / "checkpoint").is_dir():
        raise RunError(f"{run} has no checkpoint to go on from: it was pruned, compared or saved without one")
    state = training_state(run)
    epochs, records = state["plan"].get("epochs"), state.get("history") or []
    return bool(state["progress"].get("done")) or bool(epochs and records and records[-1]["epoch"] >= epochs)


def training_state(run: Path) -> dict[str, Any]:
    """The JSON state of a run's checkpoint."""
    state: dict[str, Any] = checkpoint.read(run / runs.STATE)[1]
    if not {"plan", "progress"} <= set(state):
        raise RunError(f"the checkpoint in {run} was written by another version")
    return state


def _changes_inputs(plain: Mapping[str, Any]) -> bool:
    return plain.get("normalise", "none") != "none" or any(one["categories"] for one in plain.get("columns", ()))
