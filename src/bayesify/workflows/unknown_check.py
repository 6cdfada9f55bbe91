"""A check for unknown inputs for a run: fitted on its training inputs, saved in its folder, and scored."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesify import runs
from bayesify.data import DataError
from bayesify.decisions import UnknownInputs
from bayesify.errors import RunError
from bayesify.methods import Method
from bayesify.workflows import run_data
from bayesify.workflows.inputs import read_inputs
from bayesify.workflows.python_runs import as_taken


def training_inputs(run: Path, data: str | None = None) -> Tensor:
    """The inputs that a run was trained on, prepared as its network takes them.

    Args:
        run: its folder.
        data: a file with the training inputs, in a form that `predict` reads; None is the run's own training part.

    Returns:
        Inputs, `[n, ...]`.

    Raises:
        RunError: the run's data is not in its place, or has changed.
        DataError: the file cannot be read or does not fit.

    """
    config = runs.read_config(run)
    if data is not None:
        preparation = run_data.preparation_of(config, run)
        if not Path(data).exists():
            raise DataError(f"{data} does not exist: give a file or a folder with training inputs")
        return read_inputs([data], preparation, io.StringIO()).prepared(preparation)
    known = run_data.training_examples(config, run)
    if known is None:
        raise RunError(
            f"the training data of {run} is not at hand (fitted in Python, moved or changed): give its training inputs "
            "with --data FILE"
        )
    return known[0]


def fit_check(method: Method, run: Path, inputs: Tensor, by: str = "knn", **settings: Any) -> UnknownInputs:
    """Fit a check on training inputs and save it in the run's folder.

    Args:
        method: the method of the run.
        run: its folder.
        inputs: its training inputs.
        by: the score.
        **settings: of `UnknownInputs`.

    Returns:
        The check.

    """
    check = UnknownInputs(method, as_taken(method, inputs), by, **settings)
    check.save(run)
    return check


def score_check(check: UnknownInputs | None, x: Tensor, unknown: Tensor | None) -> dict[str, Any]:
    """What a check does on test inputs and on unknown ones.

    Args:
        check: the check of a run, or None.
        x: test inputs of a known kind.
        unknown: inputs of an unknown kind, where there are any.

    Returns:
        `by`, `coverage` (the share that it was fitted for) and the shares of both that it accepts; empty without a
        check.

    """
    if check is None:
        return {}
    told = {"by": check.by, "layer": check.layer, "coverage": check.coverage, "threshold": check.threshold}
    told["accepted"] = float(check.accept(x).double().mean())
    if unknown is not None and len(unknown):
        told["unknown_accepted"] = float(check.accept(unknown).double().mean())
    return told
