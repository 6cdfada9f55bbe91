"""What a page shows, as Python that makes it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from bayesify.studio import bayes, decide, draw, understand, weights
from bayesify.studio.decide import SCORES
from bayesify.studio.models import API, Shelf
from bayesify.studio.training import Lesson


class Answered(BaseModel):
    """The settings of the Decide and the Weights page."""

    model: str
    by: str = "confidence"
    threshold: float = 0.9
    fraction: float = Field(default=0.5, ge=0, lt=1)
    draws: int = Field(default=50, ge=1, le=200)
    seed: int = Field(default=0, ge=0, lt=2**31)


class Drawn(draw.Drawing):
    """The drawing, and the threshold."""

    at_least: float = Field(default=0.9, ge=0, le=1)


def router(shelf: Shelf) -> APIRouter:
    """One route for each kind of picture: it takes what the picture was asked with."""
    routes = APIRouter(prefix=f"{API}/python")

    @routes.post("/draw")
    def of_drawing(drawn: Drawn) -> dict[str, Any]:
        return {"python": draw.python(shelf, drawn, drawn.at_least)}

    @routes.post("/decide")
    def of_decision(asked: Answered) -> dict[str, Any]:
        if asked.by not in SCORES:
            raise HTTPException(422, f"by must be one of {', '.join(SCORES)}, got {asked.by!r}")
        return {"python": decide.python(shelf, asked.model, asked.by, asked.threshold, asked.draws, asked.seed)}

    @routes.post("/weights")
    def of_weights(asked: Answered) -> dict[str, Any]:
        by = "magnitude" if asked.by == "magnitude" else "snr"
        return {"python": weights.python(shelf, asked.model, asked.fraction, by, asked.draws, asked.seed)}

    @routes.post("/understand")
    def of_lesson(lesson: Lesson) -> dict[str, Any]:
        try:
            return {"python": understand.python(lesson)}
        except (ValueError, TypeError) as problem:
            raise HTTPException(422, str(problem)) from None

    @routes.post("/coin")
    def of_coin(tosses: bayes.Tosses) -> dict[str, Any]:
        return {"python": bayes.coin_python(tosses)}

    @routes.post("/line")
    def of_line(dots: bayes.Dots) -> dict[str, Any]:
        return {"python": bayes.line_python(dots)}

    return routes
