"""Routes whose function reads the request itself.

FastAPI looks at the signature of a route's function in every request, which costs more than the rest of its work
together. The routes that predict take text from the path and the request, nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute


def add_light_route(app: FastAPI, path: str, function: Callable[..., Awaitable[Response]], **about: Any) -> None:
    """Add a route that is described in the schema like any other.

    Args:
        app: the application.
        path: of the route; its parameters are text.
        function: called as `function(request=request, **parameters of the path)`.
        **about: as `add_api_route` takes it.

    """
    app.router.add_api_route(path, function, route_class_override=_LightRoute, **about)


class _LightRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        function = self.endpoint

        async def handle(request: Request) -> Response:
            response: Response = await function(request=request, **request.path_params)
            return response

        return handle
