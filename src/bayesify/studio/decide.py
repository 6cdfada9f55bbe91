"""The Decide page: what each test example was answered and how sure, so that a threshold can be tried on all."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Response

from bayesify.predictive import Predictive
from bayesify.studio.models import API, DrawCount, Seed, Shelf, folder_of, sheet

SCORES = ("confidence", "entropy", "epistemic")
COLUMNS = 40


def router(shelf: Shelf) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API)
    kept: dict[tuple[str, int, int], dict[str, Any]] = {}

    @routes.get("/decide")
    def decide(model: str, draws: DrawCount = 50, seed: Seed = 0) -> Any:
        key = model, draws, seed
        if key not in kept:
            kept[key] = _answers(shelf, model, draws, seed)
            while len(kept) > 32:
                kept.pop(next(iter(kept)))
        return kept[key]

    @routes.get("/decide/images")
    def images(model: str, *, unknown: bool = False) -> Response:
        held = shelf.examples(model)
        pictures = held.unknown_pictures if unknown else held.pictures
        if pictures is None:
            raise HTTPException(404, f"{model} was not trained on pictures")
        headers = {"Cache-Control": "max-age=3600"}
        return Response(sheet(pictures, COLUMNS), media_type="image/png", headers=headers)

    return routes


def _answers(shelf: Shelf, name: str, draws: int, seed: int) -> dict[str, Any]:
    model = shelf.get(name)
    if model.method.likelihood.kind != "classification":
        raise HTTPException(422, f"{name} predicts numbers: the page is for classes")
    held = shelf.examples(name)
    predictive = shelf.predict(name, held.x, draws, seed)
    truth = held.y.to(predictive.labels.device)
    picture = None if held.pictures is None else list(held.pictures.shape[-2:])
    unknown = None
    if held.unknown is not None and len(held.unknown):
        unknown = {"what": held.unknown_what, **_table(shelf.predict(name, held.unknown, draws, seed))}
    return {
        "model": name,
        "method": model.method.name,
        "what": held.what,
        "shown": len(held.x),
        "total": held.total,
        "draws": predictive.draws,
        "seed": seed,
        "classes": list(predictive.class_names or map(str, range(predictive.probs.shape[-1]))),
        "truth": truth.tolist(),
        **_table(predictive),
        "picture": None if picture is None else {"height": picture[0], "width": picture[1], "columns": COLUMNS},
        "unknown": unknown,
    }


def _table(predictive: Predictive) -> dict[str, Any]:
    scores = {name: [round(v, 7) for v in predictive.score(name).double().cpu().tolist()] for name in SCORES}
    return {"labels": predictive.labels.cpu().tolist(), "scores": scores}


def python(shelf: Shelf, name: str, by: str, threshold: float, draws: int, seed: int) -> str:
    """The numbers of the page in Python."""
    rule = f"at_least={threshold:g}" if by == "confidence" else f'at_most={threshold:g}, by="{by}"'
    folder = folder_of(shelf.get(name))
    held = shelf.examples(name)
    part = held.part
    return f"""from pathlib import Path

import bayesify as bf
from bayesify.recipes.reading import examples_of
from bayesify.runs import read_config

run = Path({folder!r})
bnn = bf.load(run)
test = examples_of(read_config(run), run)
x, y = test.x{part}, test.y{part}
p = bnn.predict(x, draws={draws}, seed={seed})
accepted = p.accept({rule})
wrong = p.labels != y
print("coverage", float(accepted.double().mean()))
print("error of what is accepted", float(wrong[accepted].double().mean()))
curve = bf.risk_coverage(p, y, by="{by}")
bf.plots.risk_coverage({{bnn.name: curve}}).figure.savefig("risk-coverage.png")
"""
