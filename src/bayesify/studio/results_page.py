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
_SENTENCES = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9])")


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
                return {"number": number, "heading": _page(path)[0], **_read(path)[0]}
        raise HTTPException(
            404, f"there is no result called {name[:40]!r}{nearest(name[:40], [f.stem for f in files])}"
        )

    @routes.get("/results/figure")
    def figure(result: int, number: int) -> Response:
        # A client names a figure by its place in the list, never by a path.
        folder = find(chosen)
        files = [] if folder is None else _files(folder)
        figures = _read(files[result])[1] if 0 <= result < len(files) else []
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
    """The results, in the order in which the folder's README.md names them; others follow by name."""
    files = [path for path in folder.rglob("*.json") if path.is_file() and path.stat().st_size <= _LARGEST]
    try:
        listed = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        listed = ""

    def place(path: Path) -> tuple[bool, int, Path]:
        found = listed.find(f"({path.stem}.md)")
        return found < 0, found, path

    return sorted(files, key=place)[:200]


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


def _told_first(figures: list[Path], content: Any) -> list[Path]:
    """The figures in the order in which the result tells them; those that it does not name follow."""
    told = content.get("pictures") if isinstance(content, dict) else None
    names = [one.get("file") for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return sorted(figures, key=lambda file: names.index(file.name) if file.name in names else len(names))


def _card(number: int, path: Path) -> dict[str, Any]:
    """A result for the gallery: its question, its answer in a sentence, and its figures.

    The page beside a result may open with the question and with a verdict in bold, whose first sentence is the answer
    and whose other sentences are shown smaller. Without a verdict it is the first sentence of what the result says.
    """
    read, _ = _read(path)
    content = read["content"] or {}
    heading, opening, verdict = _page(path)
    asked = opening if opening.endswith("?") else ""
    told = _text(content, "answer", "claim", "summary", "conclusion", "description") or (opening if not asked else "")
    said = _SENTENCES.split(verdict, maxsplit=1)
    return {
        "number": number,
        "name": path.stem,
        "title": _text(content, "title") or heading or path.stem.replace("-", " "),
        "question": _text(content, "question") or asked,
        "answer": said[0] if verdict else first_sentence(told),
        "more": said[1] if verdict and len(said) > 1 else "",
        "command": _text(content, "command"),
        "figures": read["figures"],
        "problem": read.get("problem"),
    }


def _page(path: Path) -> tuple[str, str, str]:
    """The heading, the first paragraph and the verdict (in bold) of the page beside a result; empty without a page."""
    try:
        heading, *rest = path.with_suffix(".md").read_text(encoding="utf-8").strip().split("\n\n")
    except (OSError, UnicodeDecodeError):
        return "", "", ""
    told = [" ".join(part.split()) for part in rest[:3]]
    verdict = next((part[2:-2] for part in told if part.startswith("**") and part.endswith("**")), "")
    return heading.lstrip("# "), told[0] if told else "", verdict


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
    sentences = _SENTENCES.split(text.strip())
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


def _read(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """A result with the names of its figures, and the figures."""
    figures = _figures(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as problem:
        about: dict[str, Any] = {"problem": f"{path.name} could not be read: {type(problem).__name__}", "content": None}
    else:
        about = {"content": content if isinstance(content, dict) else {"values": content}}
        figures = _told_first(figures, content)
    return {"name": path.stem, "figures": [file.name for file in figures], **about}, figures
