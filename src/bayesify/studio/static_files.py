"""The studio's files for the browser, under a policy that allows requests to this server alone."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response

STATIC = Path(__file__).with_name("static")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


def router() -> APIRouter:
    """The page at the root and its files below `studio/static`."""
    routes = APIRouter(include_in_schema=False)
    # Listed once: a requested name is looked up, never joined to a path.
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}

    @routes.get("/")
    def index() -> Response:
        return _serve(STATIC / "index.html")

    @routes.get("/studio/static/{name:path}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return _serve(files[name])

    return routes


def _serve(path: Path) -> Response:
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Response(path.read_bytes(), media_type=kind, headers=HEADERS)
