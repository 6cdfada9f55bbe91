"""The studio: a page in the browser to draw on, decide with and understand by; nothing in it comes from outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bayesify.studio.models import Models

__all__ = ["attach", "demo_runs"]


def attach(app: FastAPI, registry: Models, *, results: str | Path | None = None) -> None:
    """Add the page at `/`, its files under `/studio/static` and its API under `/studio/api` to a server.

    Args:
        app: the FastAPI application.
        registry: the loaded runs: `names()` and `get(name)`.
        results: the folder of reproduced experiments; without one, `docs/results` where that is here.

    """
    from bayesify.studio import bayes, decide, draw, page, python_code, understand, weights
    from bayesify.studio import results as reproduced
    from bayesify.studio.models import Shelf

    shelf, classroom = Shelf(registry), understand.Classroom()
    if hasattr(app.state, "closing"):
        # A training in progress must not keep a server that wants to end.
        app.state.closing.append(classroom.close)
    for part in (
        draw.router(shelf),
        decide.router(shelf),
        understand.router(classroom),
        bayes.router(),
        weights.router(shelf),
        reproduced.router(None if results is None else Path(results)),
        python_code.router(shelf),
    ):
        app.include_router(part, tags=["studio"])
    app.include_router(page.router())


def demo_runs() -> list[Path]:
    """The demo's runs, found in `runs/demo` or the user's cache, or made there."""
    from bayesify.studio import demonstration

    return demonstration.demo_runs()
