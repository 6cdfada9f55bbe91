"""The Results page: a folder of reproduced experiments, JSON files with figures beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response

from bayesify.errors import nearest
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
        listed = [_card(number, path) for number, path in enumerate(_files(folder))]
        return {"folder": str(folder), "looked_in": [str(folder)], "results": listed}

    @routes.get("/results/one")
    def one(name: Annotated[str, Query(max_length=200)]) -> dict[str, Any]:
        # Looked up among the files that are there, never joined to a path.
        folder = find(chosen)
        files = [] if folder is None else _files(folder)
        for number, path in enumerate(files):
            if path.stem == name:
                return {"number": number, **_read(path)}
        raise HTTPException(
            404, f"there is no result called {name[:40]!r}{nearest(name[:40], [f.stem for f in files])}"
        )

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
    # `mnist-cnn-least.svg` belongs to `mnist-cnn`, not to `mnist`.
    longer = tuple(other.stem for other in path.parent.glob(f"{path.stem}*.json") if other != path)
    return sorted(
        file
        for file in {*beside, *inside}
        if file.suffix.lower() in FIGURES and not (longer and file.stem.startswith(longer))
    )


def _card(number: int, path: Path) -> dict[str, Any]:
    """A result for the gallery: its question, the first sentence of its answer, and its figures."""
    read = _read(path)
    content = read["content"] or {}
    heading, opening = ("", "") if _text(content, "title") else _page(path)
    answer = _text(content, "answer", "claim", "summary", "conclusion", "description") or opening
    return {
        "number": number,
        "name": path.stem,
        "title": _text(content, "title") or heading or path.stem.replace("-", " "),
        "question": _text(content, "question"),
        "answer": first_sentence(answer),
        "command": _text(content, "command"),
        "figures": read["figures"],
        "problem": read.get("problem"),
    }


def _page(path: Path) -> tuple[str, str]:
    """The heading and the first paragraph of the page beside a result that has no words of its own."""
    try:
        heading, *rest = path.with_suffix(".md").read_text(encoding="utf-8").strip().split("\n\n")
    except OSError:
        return "", ""
    return heading.lstrip("# "), " ".join(rest[0].split()) if rest else ""


def first_sentence(text: str, longest: int = 220) -> str:
    """The first sentence of a text; where it is long, its first part, up to a semicolon or a whole word.

    Args:
        text: any text.
        longest: number of letters.

    Returns:
        At most `longest` letters.

    Examples:
        >>> first_sentence("It takes 1.5 seconds. Then it ends.")
        'It takes 1.5 seconds.'

    """
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z0-9])", text.strip())
    # An answer may repeat its question first.
    sentence = next((part for part in sentences if not part.endswith("?")), sentences[0])
    if len(sentence) <= longest:
        return sentence
    # A clause with a number says what was found.
    clauses = sentence.split("; ")
    clause = next((part for part in clauses if any(map(str.isdigit, part))), clauses[0])
    clause = clause[:1].upper() + clause[1:].rstrip(".")
    return f"{clause}." if len(clause) < longest else f"{clause[:longest].rsplit(' ', 1)[0]} …"


def _text(content: dict[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := content.get(name), str)), "")


def _read(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"name": path.stem, "figures": [file.name for file in _figures(path)]}
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as problem:
        return about | {"problem": f"{path.name} could not be read: {type(problem).__name__}", "content": None}
    return about | {"content": content if isinstance(content, dict) else {"values": content}}
