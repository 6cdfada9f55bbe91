"""The Draw page: the prediction of each run for a drawing, draw by draw, and for test and unknown images."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel, Field, FiniteFloat
from torch import Tensor

from bayesify.data import DataError, open_data
from bayesify.data.catalogue import KNOWN
from bayesify.data.locations import find
from bayesify.predictive import Predictive
from bayesify.studio import strokes
from bayesify.studio.models import API, Model, ModelStore, describe, folder_of, sheet, title_of
from bayesify.studio.routes import StudioRoute
from bayesify.workflows.run_data import as_images

CLOTHES = "fashion-mnist"
# Not NaN either, which JSON lacks and a text may spell.
Point = tuple[FiniteFloat, FiniteFloat]
Count = Annotated[int, Query(ge=0, lt=2**31)]
# The pad's grid: a link has two base-64 digits for a coordinate, so that pad, link and export have the same numbers.
STEPS = 4095


class Sample(BaseModel):
    """An image that the server has: a test or withheld image of a run, or one of Fashion-MNIST, by its number."""

    kind: Literal["test", "withheld", "clothes"]
    number: int = Field(default=0, ge=0, lt=2**31)
    model: str | None = Field(default=None, max_length=200)


class Drawing(BaseModel):
    """What is on the pad, and the settings of the prediction."""

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


def router(store: ModelStore) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API, route_class=StudioRoute)

    @routes.get("/models")
    def models() -> dict[str, Any]:
        return {"models": [describe(store.get(name)) for name in store.names()], "clothes": clothes_here()}

    @routes.post("/draw")
    async def draw(drawing: Drawing) -> dict[str, Any]:
        if sum(map(len, drawing.strokes)) > 20_000:
            raise HTTPException(413, "the drawing has more than 20,000 points: clear the pad and draw less")
        drawn = await asyncio.to_thread(_ink, store, drawing)
        if strokes.empty(drawn):
            return {"empty": True, "answers": []}
        wanted = store.names() if drawing.models is None else drawing.models
        chosen = [model for model in map(store.get, wanted) if describe(model)["drawable"]]
        truth = await asyncio.to_thread(true_class, store, drawing.sample)
        return {
            "empty": False,
            "truth": truth,
            "answers": list(await asyncio.gather(*(_predict(m, drawn, drawing) for m in chosen))),
        }

    @routes.get("/draw/sample")
    def sample(
        kind: Literal["test", "withheld", "clothes"],
        number: Count = 0,
        model: Annotated[str | None, Query(max_length=200)] = None,
    ) -> Response:
        return _png(sample_image(store, Sample(kind=kind, number=number, model=model)))

    return routes


def clothes_here() -> bool:
    """Whether Fashion-MNIST is on this machine; the studio never downloads it."""
    return find(KNOWN[CLOTHES]) is not None


def sample_image(store: ModelStore, sample: Sample) -> Tensor:
    """Levels 0 ... 1 of a sample; a number beyond the last image starts again at the first."""
    if sample.kind == "clothes":
        if not clothes_here():
            raise HTTPException(404, "Fashion-MNIST is not on this machine: put it into $BAYESIFY_DATA")
        images = open_data(CLOTHES).x_test
        return images[sample.number % len(images)].double() / 255
    name = sample.model or ""
    examples = store.examples(name)
    levels = examples.unknown_images if sample.kind == "withheld" else examples.images
    if levels is None or not len(levels):
        raise HTTPException(404, f"{name} has no {sample.kind} images")
    return levels[sample.number % len(levels)]


def true_class(store: ModelStore, sample: Sample | None) -> str | None:
    """The class of a test image by name; None for everything else."""
    if sample is None or sample.kind != "test":
        return None
    name = sample.model or ""
    labels = store.examples(name).y
    names = list(store.get(name).class_names or ())
    label = int(labels[sample.number % len(labels)])
    return names[label] if label < len(names) else str(label)


def summary(predictive: Predictive) -> dict[str, Any]:
    """The prediction for the first input: the mean, each draw, and the parts of the uncertainty in nats."""
    scores = {name: float(getattr(predictive, name)[0]) for name in ("confidence", "entropy", "aleatoric", "epistemic")}
    label = int(predictive.labels[0])
    names = predictive.class_names or tuple(map(str, range(predictive.probs.shape[-1])))
    return scores | {
        "label": names[label],
        "classes": list(names),
        "probs": _rounded(predictive.probs[0]),
        "draw_probs": [_rounded(draw) for draw in predictive.draw_probs[:, 0]],
        "draws": predictive.draws,
    }


def _ink(store: ModelStore, drawing: Drawing) -> Any:
    under = None
    try:
        if drawing.sample is not None:
            under = strokes.levels_ink(sample_image(store, drawing.sample))
        elif drawing.picture is not None:
            under = strokes.on_pad(strokes.picture_ink(drawing.picture))
        return strokes.ink(drawing.strokes, drawing.pen, under)
    except DataError as problem:
        raise HTTPException(422, str(problem)) from None


async def _predict(model: Model, drawn: Any, drawing: Drawing) -> dict[str, Any]:
    preparation = model.preparation
    assert preparation is not None
    boxed = drawing.boxed and bool(describe(model)["boxed"])
    raw = strokes.example(drawn, strokes.layout_of(preparation), boxed=boxed)
    x = preparation.apply(raw[None])
    predictive = await model.predict(x, draws=drawing.draws, seed=drawing.seed)
    known = await model.known(x)
    seen = as_images(x, preparation)
    assert seen is not None
    grey = seen[0] if seen.dim() == 3 else seen[0].mean(0)
    shown = {"height": grey.shape[0], "width": grey.shape[1], "levels": _rounded(grey.flatten(), 3)}
    about = {"name": model.name, "method": model.method.name, "title": title_of(model.method), "seen": shown}
    # None: the run has no check for unknown inputs.
    return about | summary(predictive) | {"known": None if known is None else bool(known[0])}


def _rounded(values: Tensor, places: int = 5) -> list[float]:
    return [round(value, places) for value in values.double().cpu().tolist()]


def _png(image: Tensor) -> Response:
    return Response(
        sheet(image[None].to(torch.float64), columns=1),
        media_type="image/png",
        headers={"Cache-Control": "max-age=3600"},
    )


def python(store: ModelStore, drawing: Drawing, at_least: float) -> str:
    """The predictions for the drawing in Python."""
    if strokes.empty(_ink(store, drawing)):
        return "# The pad is empty: there is nothing to predict.\n"
    under = _python_of_picture(store, drawing)
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
    names = [name for name in drawing.models or store.names() if describe(store.get(name))["drawable"]]
    for name in names:
        model = store.get(name)
        boxed = drawing.boxed and bool(describe(model)["boxed"])
        arguments = f"pen={drawing.pen!r}, boxed={boxed}" + (", under=under" if under else "")
        lines += [
            "",
            f"bnn = bf.load({str(Path(folder_of(model)))!r})",
            'preparation = Preparation.from_dict(bnn.notes["preparation"])',
            f"raw = digit(strokes, preparation, {arguments})",
            "x = preparation.apply(raw[None])",
            f"p = bnn.predict(x, draws={drawing.draws}, seed={drawing.seed})",
            *_python_of_check(model),
            f"sure = {_KNOWN[model.check is not None]}bool(p.accept(at_least={at_least!r})[0])",
            'answer = p.names[0] if sure else "I do not know"',
            f"print({name!r}, answer, float(p.confidence), float(p.aleatoric), float(p.epistemic))",
        ]
    return "\n".join(lines) + "\n"


_KNOWN = {True: "known and ", False: ""}


def _python_of_check(model: Model) -> list[str]:
    """Whether the input is like the training data, where the run has a check for that."""
    return [] if model.check is None else ["known = bool(bf.UnknownInputs.load(bnn.run, bnn).accept(x)[0])"]


_READING = """from bayesify.workflows.run_data import as_images, examples_of, preparation_of
from bayesify.runs import read_config"""


def _python_of_strokes(drawing: Drawing) -> list[str]:
    """The strokes, in whole steps of the pad's grid where they lie on it."""
    steps = [[(round(x * STEPS), round(y * STEPS)) for x, y in stroke] for stroke in drawing.strokes]
    if [[(x / STEPS, y / STEPS) for x, y in stroke] for stroke in steps] != drawing.strokes:
        return [f"strokes = {drawing.strokes}"]
    if not steps:
        return ["strokes = []"]
    return [f"steps = {steps}", f"strokes = [[(x / {STEPS}, y / {STEPS}) for x, y in stroke] for stroke in steps]"]


def _python_of_picture(store: ModelStore, drawing: Drawing) -> list[str]:
    """The image under the strokes; nothing where there is none."""
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
    examples = store.examples(name)
    levels = examples.unknown_images if sample.kind == "withheld" else examples.images
    assert levels is not None
    place = sample.number % len(levels)
    part = f"unknown[{place}:][:1]" if sample.kind == "withheld" else f"x[{place * examples.step}:][:1]"
    return [
        f"run = Path({folder_of(store.get(name))!r})",
        "config = read_config(run)",
        f"under = levels_ink(as_images(examples_of(config, run).{part}, preparation_of(config, run))[0])",
    ]
