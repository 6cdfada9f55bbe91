"""What `bayesify learn-on` does: a run learns new data with its posterior as the prior, and the change is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify import runs
from bayesify.data import DataError
from bayesify.decisions import Continual
from bayesify.errors import RunError
from bayesify.evaluation import evaluate
from bayesify.methods import Variational
from bayesify.methods.cards import CARDS
from bayesify.methods.defaults import enough_epochs
from bayesify.workflows import run_data
from bayesify.workflows.build import user_factory
from bayesify.workflows.load import load_run
from bayesify.workflows.python_runs import as_taken

FEWEST = 10


def learn_on(
    run: Path,
    data: str,
    out: Path,
    *,
    task: str | None = None,
    coreset: int | None = None,
    discount: float | None = None,
    test: float = 0.2,
    epochs: int | None = None,
    batch_size: int = 128,
    learning_rate: float | None = None,
    draws: int = 50,
    seed: int = 0,
    network: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Teach a variational run new data, and write the result to another folder.

    Args:
        run: the run that has learned the data so far.
        data: the new data, with the columns or images and the classes of the run.
        out: the folder of the new run.
        task: the name of the new data; None numbers it.
        coreset: examples of the new data to keep and to rehearse; None is what the run did before, otherwise 0.
        discount: how much of the old data is forgotten; None is what the run did before, otherwise 0.
        test: the share of the new data that scores the result.
        epochs: passes over the new data; None for at least 2,000 steps.
        batch_size: examples per step.
        learning_rate: of the optimiser; None for the default of the method.
        draws: posterior draws for the scores.
        seed: of the split, the order of examples and the noise.
        network: `module:factory` of the user's network.
        overwrite: replace a run in `out`.
        progress: show a progress bar.

    Returns:
        Scores before and after, on the held-out new examples and on the run's own test part where it is at hand.

    Raises:
        RunError: the run is not variational, or `out` holds another run.
        ValueError: a number is out of range, or there are too few examples.

    """
    if not 0 < test < 1:
        raise ValueError(f"--test must lie between 0 and 1, got {test:g}")
    config = runs.read_config(run)
    new = run_data.examples_of(config, run, data)
    if new.training is not None:
        raise ValueError(f"{data} is the data that {run} was trained on: give new data")
    learner = _learner(run, network, coreset, discount)
    before = learner.method_for()
    x = as_taken(before, new.x)
    held, rest = _parts(len(new.y), test, seed)
    old = _old_test(config, run)
    runs.claim(out, overwrite=overwrite)
    images = run_data.preparation_of(config, run).image is not None
    usual = CARDS["variational"].settings_for(before.likelihood.kind, images=images)
    plan: dict[str, Any] = {
        "batch_size": batch_size,
        "learning_rate": learning_rate or usual["learning_rate"],
        "schedule": "cosine",
        "seed": seed,
        "progress": progress,
    }
    learner.learn((x[rest], new.y[rest]), task, epochs=epochs or enough_epochs(len(rest), batch_size), **plan)
    if learner.coreset:
        learner.rehearse(epochs=epochs or enough_epochs(learner.coreset, batch_size), **plan)
    after = learner.method_for()
    after.notes = dict(before.notes)
    learner.save(out)
    scored = {"new": (x[held], new.y[held])} | ({} if old is None else {"old": old})
    key = "accuracy" if before.likelihood.kind == "classification" else "rmse"

    def measured(method: Variational) -> dict[str, dict[str, float | None]]:
        found = {name: evaluate(method, pair, draws=draws, seed=0) for name, pair in scored.items()}
        return {name: {"nll": one.nll, key: getattr(one, key)} for name, one in found.items()}

    return {
        "run": str(run),
        "out": str(out),
        "data": new.what,
        "tasks": learner.tasks,
        "learned": len(rest),
        "coreset": learner.coreset,
        "discount": learner.discount,
        "before": measured(before),
        "after": measured(after),
    }


def _learner(run: Path, network: str | None, coreset: int | None, discount: float | None) -> Continual:
    if (run / runs.CONTINUAL).is_file():
        learner = Continual.load(run, network=None if network is None else user_factory(network))
        learner.coreset = learner.coreset if coreset is None else coreset
        learner.discount = learner.discount if discount is None else discount
        return learner
    method = load_run(run, network)
    if not isinstance(method, Variational):
        raise RunError(
            f"learn-on needs means and widths to go on from, {run} is {method.name}: train --method variational"
        )
    return Continual(method, coreset=coreset or 0, discount=discount or 0.0, learned=["first"])


def _parts(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    if count < FEWEST:
        raise ValueError(f"learn-on needs at least {FEWEST} new examples, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = max(1, round(share * count))
    return order[:held], order[held:]


def _old_test(config: dict[str, Any], run: Path) -> tuple[Tensor, Tensor] | None:
    """The run's own test part, where its data is still in its place."""
    try:
        found = run_data.examples_of(config, run)
    except (DataError, RunError):
        return None
    return found.x, found.y
