"""The Draw page: what each run says about a drawing, draw by draw, and unknown pictures that are one click away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel, Field
from torch import Tensor

from bayesify.data import DataError, open_data
from bayesify.data.catalogue import KNOWN
from bayesify.data.locations import find
from bayesify.predictive import Predictive
from bayesify.studio import strokes
from bayesify.studio.models import API, Model, Shelf, describe, folder_of, sheet
from bayesify.workflows.run_data import as_images

CLOTHES = "fashion-mnist"
Point = tuple[float, float]
Count = Annotated[int, Query(ge=0, lt=2**31)]
# The pad's grid: a link holds a coordinate in two letters of 64, so that pad, link and export are the same numbers.
STEPS = 4095


class Sample(BaseModel):
    """A picture that this server has: a test or withheld image of a run, or a piece of clothing, by its number."""

    kind: Literal["test", "withheld", "clothes"]
    number: int = Field(default=0, ge=0, lt=2**31)
    model: str | None = None


class Drawing(BaseModel):
    """What is on the pad, and how to answer."""

    strokes: list[list[Point]] = Field(default=[], max_length=200)
    pen: float = Field(default=0.1, gt=0, le=0.5)
    picture: str | None = Field(default=None, max_length=1_500_000)
    picture_name: str | None = Field(default=None, max_length=200)
    picture_changed: bool = False
    sample: Sample | None = None
    boxed: bool = True
    draws: int = Field(default=30, ge=1, le=200)
    seed: int = Field(default=0, ge=0, lt=2**31)
    models: list[str] | None = Field(default=None, max_length=64)


def router(shelf: Shelf) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API)

    @routes.get("/models")
    def models() -> dict[str, Any]:
        return {"models": [describe(shelf.get(name)) for name in shelf.names()], "clothes": clothes_here()}

    @routes.post("/draw")
    async def draw(drawing: Drawing) -> dict[str, Any]:
        if sum(map(len, drawing.strokes)) > 20_000:
            raise HTTPException(413, "the drawing has more than 20,000 points: clear the pad and draw less")
        drawn = await asyncio.to_thread(_ink, shelf, drawing)
        if strokes.empty(drawn):
            return {"empty": True, "answers": []}
        wanted = shelf.names() if drawing.models is None else drawing.models
        chosen = [model for model in map(shelf.get, wanted) if describe(model)["drawable"]]
        return {"empty": False, "answers": list(await asyncio.gather(*(_ask(m, drawn, drawing) for m in chosen)))}

    @routes.get("/draw/sample")
    def sample(kind: Literal["test", "withheld", "clothes"], number: Count = 0, model: str | None = None) -> Response:
        return _png(sample_picture(shelf, Sample(kind=kind, number=number, model=model)))

    return routes


def clothes_here() -> bool:
    """Whether Fashion-MNIST is on this machine; it is never fetched from here."""
    return find(KNOWN[CLOTHES]) is not None


def sample_picture(shelf: Shelf, sample: Sample) -> Tensor:
    """Levels 0 ... 1 of a sample; numbers go round."""
    if sample.kind == "clothes":
        if not clothes_here():
            raise HTTPException(404, "Fashion-MNIST is not here: put it into $BAYESIFY_DATA")
        images = open_data(CLOTHES).x_test
        return images[sample.number % len(images)].double() / 255
    name = sample.model or ""
    held = shelf.examples(name)
    pictures = held.unknown_pictures if sample.kind == "withheld" else held.pictures
    if pictures is None or not len(pictures):
        raise HTTPException(404, f"{name} has no such pictures")
    return pictures[sample.number % len(pictures)]


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


def _ink(shelf: Shelf, drawing: Drawing) -> Any:
    under = None
    try:
        if drawing.sample is not None:
            under = strokes.levels_ink(sample_picture(shelf, drawing.sample))
        elif drawing.picture is not None:
            under = strokes.on_pad(strokes.picture_ink(drawing.picture))
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
    seen = as_images(x, preparation)
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
    if strokes.empty(_ink(shelf, drawing)):
        return "# The pad is empty: there is nothing to ask about.\n"
    under = _python_of_picture(shelf, drawing)
    lines = [
        *(["from pathlib import Path", ""] if any("Path(" in line for line in under) else []),
        "import bayesify as bf",
        "from bayesify.data import Preparation" + (", open_data" if any("open_data" in line for line in under) else ""),
        *([_READING] if any("examples_of" in line for line in under) else []),
        "from bayesify.studio.strokes import digit"
        + "".join(f", {name}" for name in ("file_ink", "levels_ink") if any(f"{name}(" in line for line in under)),
        "",
        *_python_of_strokes(drawing),
        *under,
    ]
    names = [name for name in drawing.models or shelf.names() if describe(shelf.get(name))["drawable"]]
    for name in names:
        model = shelf.get(name)
        boxed = drawing.boxed and bool(describe(model)["boxed"])
        given = f"pen={drawing.pen!r}, boxed={boxed}" + (", under=under" if under else "")
        lines += [
            "",
            f"bnn = bf.load({str(Path(folder_of(model)))!r})",
            'preparation = Preparation.from_dict(bnn.notes["preparation"])',
            f"raw = digit(strokes, preparation, {given})",
            f"p = bnn.predict(preparation.apply(raw[None]), draws={drawing.draws}, seed={drawing.seed})",
            f'answer = p.names[0] if p.accept(at_least={at_least!r})[0] else "I do not know"',
            f"print({name!r}, answer, float(p.confidence), float(p.aleatoric), float(p.epistemic))",
        ]
    return "\n".join(lines) + "\n"


_READING = """from bayesify.workflows.run_data import as_images, examples_of, preparation_of
from bayesify.runs import read_config"""


def _python_of_strokes(drawing: Drawing) -> list[str]:
    """The strokes, whole steps of the pad's grid where they lie on it."""
    steps = [[(round(x * STEPS), round(y * STEPS)) for x, y in stroke] for stroke in drawing.strokes]
    if [[(x / STEPS, y / STEPS) for x, y in stroke] for stroke in steps] != drawing.strokes:
        return [f"strokes = {drawing.strokes}"]
    if not steps:
        return ["strokes = []"]
    return [f"steps = {steps}", f"strokes = [[(x / {STEPS}, y / {STEPS}) for x, y in stroke] for stroke in steps]"]


def _python_of_picture(shelf: Shelf, drawing: Drawing) -> list[str]:
    """What lies under the strokes; nothing where nothing does."""
    sample = drawing.sample
    if sample is None:
        if drawing.picture is None:
            return []
        note = (
            "  # made smaller by the browser there, so numbers may differ a little" if drawing.picture_changed else ""
        )
        return [f"under = file_ink({drawing.picture_name or 'picture.png'!r}){note}"]
    if sample.kind == "clothes":
        count = len(open_data(CLOTHES).x_test)
        return [f"under = levels_ink(open_data({CLOTHES!r}).x_test[{sample.number % count}].double() / 255)"]
    name = sample.model or ""
    held = shelf.examples(name)
    pictures = held.unknown_pictures if sample.kind == "withheld" else held.pictures
    assert pictures is not None
    place = sample.number % len(pictures)
    part = f"unknown[{place}:][:1]" if sample.kind == "withheld" else f"x[{place * held.step}:][:1]"
    return [
        f"run = Path({folder_of(shelf.get(name))!r})",
        "config = read_config(run)",
        f"under = levels_ink(as_images(examples_of(config, run).{part}, preparation_of(config, run))[0])",
    ]
