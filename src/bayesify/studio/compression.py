"""Gzip for the studio's pages, scripts and tables; predictions for programs stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware.gzip import GZipMiddleware

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

# Level 9 takes several times as long as 6 for a few bytes less.
LEVEL = 6


class StudioCompression(GZipMiddleware):
    """Compresses what a browser asks of the studio; images and event streams are left out."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        path = scope.get("path", "")
        if scope["type"] == "http" and (path == "/" or path.startswith("/studio/")):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
