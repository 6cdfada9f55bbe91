"""The Runs page: the loaded runs side by side, with their scores and the curves of their training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from bayesify.errors import RunError
from bayesify.evaluation.scores import SCORES
from bayesify.runs import read_history
from bayesify.studio.models import API, Model, ModelStore, describe

CURVES = ("loss", "nll", "kl", "validation_nll", "validation_error")
MOST_POINTS = 200


def router(store: ModelStore) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API)

    @routes.get("/runs")
    def runs() -> dict[str, Any]:
        return {"runs": [_run(store.get(name)) for name in store.names()]}

    return routes


def _run(model: Model) -> dict[str, Any]:
    folder = model.method.run
    records = [] if folder is None else _history(Path(folder))
    return {
        **describe(model),
        "scores": {} if folder is None else _scores(Path(folder)),
        "curves": {name: curve for name in CURVES if (curve := _curve(records, name))},
        "epochs": len(records),
        "seconds": sum(record.get("seconds") or 0.0 for record in records) or None,
    }


def _history(folder: Path) -> list[dict[str, Any]]:
    try:
        return list(read_history(folder))
    except (RunError, OSError):
        return []


def _curve(records: list[dict[str, Any]], name: str) -> list[list[float]]:
    """Epoch and value of a column, an even part where there are many."""
    points = [[record["epoch"], record[name]] for record in records if _is_number(record.get(name))]
    step = -(-len(points) // MOST_POINTS) if points else 1
    return points[:: step or 1] + (points[-1:] if points and (len(points) - 1) % step else [])


def _scores(folder: Path) -> dict[str, dict[str, Any]]:
    """The scores in metrics.json that the library describes, with their names for readers."""
    try:
        read = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {
        name: {
            "value": read[name],
            "text": f"{read[name]:{score.form}}{score.unit}",
            "title": score.heading,
            "better": score.better,
            "sentence": score.sentence,
        }
        for name, score in SCORES.items()
        if _is_number(read.get(name))
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
