"""Routes whose JSON is parsed beside the event loop: a large body would hold up every other client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from bayesify.serving.input_arrays import read_json

# A body of this many bytes is parsed in a few milliseconds.
_SMALL = 64 << 10


class StudioRoute(APIRoute):
    """A route of the studio; the gate has counted its body, and what its JSON becomes, while it arrived."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, called with a request that parses in a thread."""
        handle = super().get_route_handler()

        async def parsed_beside(request: Request) -> Response:
            return await handle(_ParsedBeside(request.scope, request.receive))

        return parsed_beside


class _ParsedBeside(Request):
    async def json(self) -> Any:
        body = await self.body()
        return read_json(body) if len(body) <= _SMALL else await asyncio.to_thread(read_json, body)
