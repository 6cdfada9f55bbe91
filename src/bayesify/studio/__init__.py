"""The studio: pages in the browser to draw on, choose thresholds and watch training; they load nothing from outside."""

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
        results: the folder of reproduced experiments; by default `docs/results`, where it exists.

    """
    from bayesify.studio import (
        coin_and_line,
        decide_page,
        draw_page,
        own_data,
        python_code,
        runs_page,
        static_files,
        understand_page,
        weights_page,
    )
    from bayesify.studio import results_page as reproduced
    from bayesify.studio.compression import LEVEL, StudioCompression
    from bayesify.studio.models import ModelStore
    from bayesify.studio.turns import Turns

    turns = Turns()
    store, trainings = ModelStore(registry, turns), understand_page.Trainings(turns)
    own = own_data.OwnRuns(store)
    if hasattr(app.state, "closing"):
        # A training in progress must not keep the server from ending, nor run on while the process ends.
        app.state.closing += [trainings.close, turns.close]
        app.state.ending += [trainings.wait, turns.finish]
        app.state.ending.append(own.remove)
    app.add_middleware(StudioCompression, minimum_size=1000, compresslevel=LEVEL)
    for router in (
        draw_page.router(store),
        decide_page.router(store),
        understand_page.router(trainings),
        coin_and_line.router(),
        weights_page.router(store),
        reproduced.router(None if results is None else Path(results)),
        runs_page.router(store),
        own_data.router(own, trainings),
        python_code.router(store),
    ):
        app.include_router(router, tags=["studio"])
    app.include_router(static_files.router())


def demo_runs() -> list[Path]:
    """The demo's runs, found in `runs/demo` or the user's cache, or made there."""
    from bayesify.studio import demonstration

    return demonstration.demo_runs()
