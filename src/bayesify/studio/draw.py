"""The Draw page: what each run says about a drawing, draw by draw, and unknown pictures that are one click away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import torch
from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, Field
from torch import Tensor

from bayesify.data import DataError
from bayesify.data.catalogue import KNOWN
from bayesify.data.places import find
from bayesify.predictive import Predictive
from bayesify.recipes.reading import as_pictures
from bayesify.studio import strokes
from bayesify.studio.models import Model, Shelf, describe, sheet

CLOTHES = "fashion-mnist"
Point = tuple[float, float]


class Drawing(BaseModel):
    """What is on the pad, and how to answer."""

    strokes: list[list[Point]] = Field(default=[], max_length=200)
    pen: float = Field(default=0.1, gt=0, le=0.5)
    picture: str | None = Field(default=None, max_length=1_500_000)
    boxed: bool = True
    draws: int = Field(default=30, ge=1, le=200)
    seed: int = Field(default=0, ge=0, lt=2**31)
    models: list[str] | None = Field(default=None, max_length=64)


def router(shelf: Shelf) -> APIRouter:
    """The page's routes."""
    routes = APIRouter()

    @routes.get("/models")
    def models() -> dict[str, Any]:
        return {"models": [describe(shelf.get(name)) for name in shelf.names()], "clothes": clothes_here()}

    @routes.post("/draw")
    async def draw(drawing: Drawing) -> dict[str, Any]:
        if sum(map(len, drawing.strokes)) > 20_000:
            raise HTTPException(413, "the drawing has more than 20,000 points: clear the pad and draw less")
        drawn = _ink(drawing)
        if strokes.empty(drawn):
            return {"empty": True, "answers": []}
        wanted = shelf.names() if drawing.models is None else drawing.models
        chosen = [model for model in map(shelf.get, wanted) if describe(model)["drawable"]]
        return {"empty": False, "answers": list(await asyncio.gather(*(_ask(m, drawn, drawing) for m in chosen)))}

    @routes.get("/draw/clothes")
    def clothes(number: int = 0) -> Response:
        if not clothes_here():
            raise HTTPException(404, "Fashion-MNIST is not here: put it into $BAYESIFY_DATA")
        from bayesify.data import open_data

        images = open_data(CLOTHES).x_test
        return _png(images[number % len(images)].double() / 255)

    @routes.get("/draw/example")
    def example(model: str, number: int = 0, *, unknown: bool = False) -> Response:
        held = shelf.examples(model)
        pictures = held.unknown_pictures if unknown else held.pictures
        if pictures is None or not len(pictures):
            raise HTTPException(404, f"{model} has no such pictures")
        return _png(pictures[number % len(pictures)])

    return routes


def clothes_here() -> bool:
    """Whether Fashion-MNIST is on this machine; it is never fetched from here."""
    return find(KNOWN[CLOTHES]) is not None


def answer(predictive: Predictive) -> dict[str, Any]:
    """The first input's answer: the mean, each draw, and the parts of the doubt in nats."""
    one = {name: float(getattr(predictive, name)[0]) for name in ("confidence", "entropy", "aleatoric", "epistemic")}
    label = int(predictive.labels[0])
    names = predictive.class_names or tuple(map(str, range(predictive.probs.shape[-1])))
    return one | {
        "label": names[label],
        "classes": list(names),
        "probs": _rounded(predictive.probs[0]),
        "draw_probs": [_rounded(draw) for draw in predictive.draw_probs[:, 0]],
        "draws": predictive.draws,
    }


def _ink(drawing: Drawing) -> Any:
    try:
        under = None if drawing.picture is None else strokes.on_pad(strokes.picture_ink(drawing.picture))
        return strokes.ink(drawing.strokes, drawing.pen, under)
    except DataError as problem:
        raise HTTPException(422, str(problem)) from None


async def _ask(model: Model, drawn: Any, drawing: Drawing) -> dict[str, Any]:
    preparation = model.preparation
    assert preparation is not None
    boxed = drawing.boxed and bool(describe(model)["boxed"])
    raw = strokes.example(drawn, strokes.layout_of(preparation), boxed=boxed)
    x = preparation.apply(raw[None])
    predictive = await model.predict(x, draws=drawing.draws, seed=drawing.seed)
    seen = as_pictures(x, preparation)
    assert seen is not None
    grey = seen[0] if seen.dim() == 3 else seen[0].mean(0)
    shown = {"height": grey.shape[0], "width": grey.shape[1], "levels": _rounded(grey.flatten(), 3)}
    return {"name": model.name, "method": model.method.name, "seen": shown, **answer(predictive)}


def _rounded(values: Tensor, places: int = 5) -> list[float]:
    return [round(value, places) for value in values.double().cpu().tolist()]


def _png(picture: Tensor) -> Response:
    one = picture[None].to(torch.float64)
    return Response(sheet(one, columns=1), media_type="image/png", headers={"Cache-Control": "max-age=3600"})


def python(shelf: Shelf, drawing: Drawing, at_least: float) -> str:
    """The drawing's answers in Python."""
    from bayesify.studio.models import folder_of

    lines = [
        "import bayesify as bf",
        "from bayesify.data import Preparation",
        "from bayesify.studio.strokes import digit",
        "",
        f"strokes = {[[(round(x, 3), round(y, 3)) for x, y in stroke] for stroke in drawing.strokes]}",
    ]
    names = [name for name in drawing.models or shelf.names() if describe(shelf.get(name))["drawable"]]
    for name in names:
        model = shelf.get(name)
        boxed = drawing.boxed and bool(describe(model)["boxed"])
        lines += [
            "",
            f"bnn = bf.load({str(Path(folder_of(model)))!r})",
            'preparation = Preparation.from_dict(bnn.notes["preparation"])',
            f"raw = digit(strokes, preparation, pen={drawing.pen:g}, boxed={boxed})",
            f"p = bnn.predict(preparation.apply(raw[None]), draws={drawing.draws}, seed={drawing.seed})",
            f'answer = p.names[0] if p.accept(at_least={at_least:g})[0] else "I do not know"',
            f"print({name!r}, answer, float(p.confidence), float(p.aleatoric), float(p.epistemic))",
        ]
    if drawing.picture is not None:
        lines.insert(3, "# Without the picture under the strokes: save it, and use preparation.prepare_image.")
    return "\n".join(lines) + "\n"
