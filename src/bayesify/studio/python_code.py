"""Python code that computes what a page shows."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from bayesify.studio import coin_and_line, decide_page, draw_page, understand_page, weights_page
from bayesify.studio.decide_page import SCORES
from bayesify.studio.models import API, ModelStore
from bayesify.studio.routes import StudioRoute
from bayesify.studio.watched_training import TrainingRequest


class PageSettings(BaseModel):
    """The settings of the Decide and the Weights page."""

    model: str = Field(max_length=200)
    by: str = Field(default="confidence", max_length=40)
    threshold: float = Field(default=0.9, allow_inf_nan=False)
    fraction: float = Field(default=0.5, ge=0, lt=1)
    draws: int = Field(default=50, ge=1, le=200)
    seed: int = Field(default=0, ge=0, lt=2**31)


class ExportedDrawing(draw_page.Drawing):
    """The drawing, and the threshold."""

    at_least: float = Field(default=0.9, ge=0, le=1)


def router(store: ModelStore) -> APIRouter:
    """One route for each page; it takes the settings of the page."""
    routes = APIRouter(prefix=f"{API}/python", route_class=StudioRoute)

    @routes.post("/draw")
    def of_drawing(drawing: ExportedDrawing) -> dict[str, Any]:
        return {"python": draw_page.python(store, drawing, drawing.at_least)}

    @routes.post("/decide")
    def of_decision(settings: PageSettings) -> dict[str, Any]:
        if settings.by not in SCORES:
            raise HTTPException(422, f"by must be one of {', '.join(SCORES)}, got {settings.by!r}")
        return {
            "python": decide_page.python(
                store, settings.model, settings.by, settings.threshold, settings.draws, settings.seed
            )
        }

    @routes.post("/weights")
    def of_weights(settings: PageSettings) -> dict[str, Any]:
        by = "magnitude" if settings.by == "magnitude" else "snr"
        return {
            "python": weights_page.python(store, settings.model, settings.fraction, by, settings.draws, settings.seed)
        }

    @routes.post("/understand")
    def of_training(request: TrainingRequest) -> dict[str, Any]:
        try:
            return {"python": understand_page.python(request)}
        except (ValueError, TypeError) as problem:
            raise HTTPException(422, str(problem)) from None

    @routes.post("/coin")
    def of_coin(tosses: coin_and_line.Tosses) -> dict[str, Any]:
        return {"python": coin_and_line.coin_python(tosses)}

    @routes.post("/line")
    def of_line(dots: coin_and_line.Dots) -> dict[str, Any]:
        return {"python": coin_and_line.line_python(dots)}

    return routes
