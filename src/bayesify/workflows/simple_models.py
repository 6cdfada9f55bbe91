"""Simple models for comparison with a run, trained on the same rows of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesify import runs
from bayesify.evaluation.baselines import Baseline, train_baselines
from bayesify.methods import Method
from bayesify.workflows.prepare import PreparedData
from bayesify.workflows.run_data import Examples, training_examples


def simple_models(method: Method, examples: Examples, run: Path) -> list[Baseline]:
    """The baselines of a run on the examples that it is scored on.

    Args:
        method: of the run.
        examples: the examples.
        run: its folder.

    Returns:
        The baselines; none for images, for targets of several numbers, and where the training data is not at hand.

    """
    if not _is_table(method.notes) or examples.y.ndim != 1:
        return []
    training = examples.training or training_examples(runs.read_config(run), run)
    if training is None:
        return []
    return _trained(method.notes, training, (examples.x, examples.y))


def simple_models_of(prepared: PreparedData) -> list[Baseline]:
    """The baselines of prepared data on its test examples; none for images and without test examples."""
    if not _is_table(prepared.notes) or len(prepared.test[1]) == 0 or prepared.test[1].ndim != 1:
        return []
    return _trained(prepared.notes, prepared.train, prepared.test)


def _is_table(notes: dict[str, Any]) -> bool:
    preparation = notes.get("preparation") or {}
    return preparation.get("image") is None and bool(preparation.get("columns"))


def _trained(notes: dict[str, Any], train: Any, test: Any) -> list[Baseline]:
    names = notes.get("class_names")
    balanced = notes.get("class_weights") == "balanced"
    return train_baselines(notes["kind"], train, test, classes=len(names) if names else None, balanced=balanced)
