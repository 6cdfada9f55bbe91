"""Reading trained runs: for Python, the command line, the server and the studio.

`bayesify predict` and the server prepare raw inputs themselves. In Python a method takes tensors as in training;
`bayesify.prepare` makes them from raw inputs, and the first prediction warns where that was not done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.errors import RunError, first_line
from bayesify.methods import Method, saving
from bayesify.runs import checkpoint
from bayesify.workflows.build import user_factory
from bayesify.workflows.recipe import Recipe, make_recipe, settings_of_run


def load(
    path: str | Path,
    network: Any = None,
    device: torch.device | str = "cpu",
    output: Callable[[Any], Tensor] | None = None,
) -> Method:
    """Read a method from a run folder; of an interrupted run, the state of its last checkpoint.

    The method takes inputs as they were in training. For a run of `bayesify train`, `bayesify.prepare` makes them from
    raw inputs. The first prediction gives a `BayesifyWarning` if `prepare` has not been called for the run. Predictions
    are in the units of the targets. Nothing in the folder is executed.

    Args:
        path: the folder.
        network: the module, or a function that makes it, for a network that is not built in.
        device: where to put the method.
        output: the function that picks the network's output, where the method was made with one.

    Returns:
        The method, in evaluation mode, with its history and its plan.

    Raises:
        RunError: the folder is no run, is damaged, or needs `network` or `output`.

    Examples:
        >>> folder = bnn.save("runs/mine")
        >>> bf.load(folder).predict(x, draws=5).probs.shape
        torch.Size([60, 3])

    """
    method = saving.load(path, network, device, output)
    if _changes_inputs(method.notes.get("preparation") or {}):
        method.prepared_by = Path(path).resolve()
    return method


def load_run(run: Path, network: str | None = None, *, unfinished: bool = False) -> Method:
    """Read the method of a run for a command.

    Args:
        run: the folder.
        network: `module:factory` of the user's network. It is imported only if the user names it, never because a
            folder does.
        unfinished: allow a run that was stopped in training; it has the weights of its last checkpoint.

    Returns:
        The method, in evaluation mode.

    Raises:
        RunError: the folder is no run, was stopped in training, or needs `network`.

    """
    config = runs.read_config(run)
    stopped = None
    # A damaged checkpoint matters for resuming, not for prediction.
    with suppress(RunError):
        stopped = None if unfinished or is_complete(run) else steps_done(run)
    if stopped is not None:
        raise RunError(f"{run} was stopped in training, after step {stopped}: run bayesify train --resume {run}")
    notes = config.get("data") or {}
    if config.get("output") == saving.OWN_FUNCTION:
        raise RunError(f"{run} picks its network's output by a Python function: use it from Python with bayesify.load")
    if (config.get("likelihood") or {}).get("name") == "several":
        raise RunError(f"{run} predicts several targets: use it from Python with bayesify.load")
    if network is None:
        if config.get("network") is None:
            name = notes.get("factory") or "module:factory"
            raise RunError(f"the network of {run} is made by your own code: name it with --network {name}")
        return saving.load(run)
    shapes = config.get("input_shapes") or [None]
    shape = None if shapes[0] is None else tuple(shapes[0])
    outputs = notes.get("outputs") or (config.get("likelihood") or {}).get("classes")
    return saving.load(run, network=user_factory(network, shape, outputs))


def recipe_of(config: dict[str, Any], run: Path, data: str | None = None) -> Recipe:
    """The recipe that a run was trained by; `data` replaces the place of its data."""
    settings = settings_of_run(config, str(run))
    return make_recipe(settings | ({} if data is None else {"data": data}), {})


def steps_done(run: Path) -> int:
    """The number of training steps at the checkpoint of a run."""
    try:
        return int(training_state(run)["progress"]["step"])
    except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
        raise _damaged(run, problem) from None


def is_complete(run: Path) -> bool:
    """Whether the run was trained to the end of its plan."""
    if not runs.read_config(run).get("complete", True):
        return False
    if not (run / "checkpoint").is_dir():
        raise RunError(f"{run} has no checkpoint to resume from: it was pruned, compared or saved without one")
    state = training_state(run)
    try:
        epochs, records = state["plan"].get("epochs"), state.get("history") or []
        return bool(state["progress"].get("done")) or bool(epochs and records and records[-1]["epoch"] >= epochs)
    except (AttributeError, LookupError, TypeError) as problem:
        raise _damaged(run, problem) from None


def training_state(run: Path) -> dict[str, Any]:
    """The JSON state of a run's checkpoint."""
    state = checkpoint.read_state(run)
    if not {"plan", "progress"} <= set(state):
        raise RunError(f"the checkpoint in {run} was written by another version: train again, or use that version")
    return state


def _damaged(run: Path, problem: Exception) -> RunError:
    if isinstance(problem, RunError):
        return problem
    return RunError(f"{run / runs.STATE} is damaged: its state cannot be used ({first_line(problem)})")


def _changes_inputs(plain: Mapping[str, Any]) -> bool:
    columns = plain.get("columns")
    coded = any(isinstance(column, dict) and column.get("categories") for column in columns or ())
    return plain.get("normalise", "none") != "none" or coded
