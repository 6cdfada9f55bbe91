"""Python code that computes what a page shows."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from bayesify.studio import bayes, decide, draw, understand, weights
from bayesify.studio.decide import SCORES
from bayesify.studio.models import API, ModelStore
from bayesify.studio.training import TrainingRequest


class PageSettings(BaseModel):
    """The settings of the Decide and the Weights page."""

    model: str = Field(max_length=200)
    by: str = Field(default="confidence", max_length=40)
    threshold: float = Field(default=0.9, allow_inf_nan=False)
    fraction: float = Field(default=0.5, ge=0, lt=1)
    draws: int = Field(default=50, ge=1, le=200)
    seed: int = Field(default=0, ge=0, lt=2**31)


class ExportedDrawing(draw.Drawing):
    """The drawing, and the threshold."""

    at_least: float = Field(default=0.9, ge=0, le=1)


def router(store: ModelStore) -> APIRouter:
    """One route for each page; it takes the settings of the page."""
    routes = APIRouter(prefix=f"{API}/python")

    @routes.post("/draw")
    def of_drawing(drawing: ExportedDrawing) -> dict[str, Any]:
        return {"python": draw.python(store, drawing, drawing.at_least)}

    @routes.post("/decide")
    def of_decision(settings: PageSettings) -> dict[str, Any]:
        if settings.by not in SCORES:
            raise HTTPException(422, f"by must be one of {', '.join(SCORES)}, got {settings.by!r}")
        return {
            "python": decide.python(
                store, settings.model, settings.by, settings.threshold, settings.draws, settings.seed
            )
        }

    @routes.post("/weights")
    def of_weights(settings: PageSettings) -> dict[str, Any]:
        by = "magnitude" if settings.by == "magnitude" else "snr"
        return {"python": weights.python(store, settings.model, settings.fraction, by, settings.draws, settings.seed)}

    @routes.post("/understand")
    def of_training(request: TrainingRequest) -> dict[str, Any]:
        try:
            return {"python": understand.python(request)}
        except (ValueError, TypeError) as problem:
            raise HTTPException(422, str(problem)) from None

    @routes.post("/coin")
    def of_coin(tosses: bayes.Tosses) -> dict[str, Any]:
        return {"python": bayes.coin_python(tosses)}

    @routes.post("/line")
    def of_line(dots: bayes.Dots) -> dict[str, Any]:
        return {"python": bayes.line_python(dots)}

    return routes
