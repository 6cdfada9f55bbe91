"""The Results page: a folder of reproduced experiments, JSON files with figures beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, Response

from bayesify.studio.models import API

FIGURES = {".png": "image/png", ".jpg": "image/jpeg", ".svg": "image/svg+xml"}
PLACES = ("docs/results", "results", "runs/results")
_LARGEST = 5_000_000


def router(chosen: Path | None) -> APIRouter:
    """The page's routes, over the chosen folder or the first of the usual ones that exists."""
    routes = APIRouter(prefix=API)

    @routes.get("/results")
    def results() -> dict[str, Any]:
        folder = find(chosen)
        if folder is None:
            return {"folder": None, "looked_in": [str(chosen)] if chosen else list(PLACES), "results": []}
        return {"folder": str(folder), "looked_in": [str(folder)], "results": [_read(path) for path in _files(folder)]}

    @routes.get("/results/figure")
    def figure(result: int, number: int) -> Response:
        # A client names a figure by its place in the list, never by a path.
        folder = find(chosen)
        files = [] if folder is None else _files(folder)
        figures = _figures(files[result]) if 0 <= result < len(files) else []
        if not 0 <= number < len(figures):
            raise HTTPException(404, "there is no such figure")
        try:
            # Read whole before the response begins: rendering an experiment again removes its old figures.
            content = figures[number].read_bytes()
        except OSError:
            raise HTTPException(404, "this figure no longer exists: load the page again") from None
        return Response(content, media_type=FIGURES[figures[number].suffix.lower()])

    return routes


def find(chosen: Path | None) -> Path | None:
    """The folder of results, where there is one."""
    places = [chosen] if chosen is not None else [Path(place) for place in PLACES]
    return next((place for place in places if place.is_dir()), None)


def _files(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*.json") if path.is_file() and path.stat().st_size <= _LARGEST]
    return sorted(files)[:200]


def _figures(path: Path) -> list[Path]:
    """Figures whose names begin with the result's, beside it or in `figures`, and all in a folder of its name."""
    beside = [file for file in path.parent.glob(f"{path.stem}*") if file.is_file()]
    inside = [
        file
        for place in (path.parent / path.stem, path.parent / "figures")
        if place.is_dir()
        for file in place.iterdir()
        if place.name == path.stem or file.stem.startswith(path.stem)
    ]
    return sorted({file for file in (*beside, *inside) if file.suffix.lower() in FIGURES})


def _read(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"name": path.stem, "figures": [file.name for file in _figures(path)]}
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as problem:
        return about | {"problem": f"{path.name} could not be read: {type(problem).__name__}", "content": None}
    return about | {"content": content if isinstance(content, dict) else {"values": content}}
