"""The ASGI application: both protocols, the metrics and a description of them, behind one gate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from bayesify import __version__
from bayesify.errors import first_line
from bayesify.serving import page, schema, v1_routes, v2_routes
from bayesify.serving.errors import error_response
from bayesify.serving.metrics import CONTENT_TYPE, Metrics
from bayesify.serving.models import Registry
from bayesify.serving.requests import json_response
from bayesify.serving.security import Gate, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("bayesify")


def create_app(
    registry: Registry,
    *,
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    token: str | None = None,
    pages: Callable[[FastAPI, Registry], None] | None = None,
    on_loaded: Callable[[], None] = lambda: None,
) -> FastAPI:
    """An ASGI application that loads the registry's models when it starts, and serves them.

    Args:
        registry: the models.
        host: the address that the server listens on; beyond this machine a token is required.
        hosts: further names that clients call it by.
        token: the bearer token that every request must send.
        pages: adds further pages and a start page at `/`, such as `bayesify.studio.attach`; without it `/` leads to
            the description of the HTTP interface.
        on_loaded: called once loading has succeeded or failed (see `registry.failure`).

    Returns:
        The application.

    Raises:
        ValueError: the token is not ASCII text without spaces, or is missing where other machines reach the server.

    """
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ValueError("the token must be ASCII text without spaces")
    if token is None and not is_loopback(host):
        raise ValueError(f"{host} can be reached from other machines: a token is required (--token or BAYESIFY_TOKEN)")

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(_load(registry, on_loaded))
        yield
        for close in app.state.closing:
            close()
        await loading
        await registry.stop()
        for wait in app.state.ending:
            await asyncio.to_thread(wait)

    app = FastAPI(
        title="bayesify",
        version=__version__,
        description="Predictions of Bayesian networks, and how uncertain they are.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.registry = registry
    # Functions that end what does not end by itself, called when the server shuts down.
    app.state.closing = []
    # Functions that wait for what was ended, called in a thread after the last response.
    app.state.ending = []
    v2_routes.add_routes(app, registry)
    v1_routes.add_routes(app, registry)
    _add_pages(app, registry, token=token is not None)
    if pages is None:
        app.add_api_route("/", _to_docs, methods=["GET"], include_in_schema=False)
    else:
        pages(app, registry)
    app.add_exception_handler(HTTPException, _on_error)
    app.add_exception_handler(RequestValidationError, _on_error)
    # The last one added is the outermost: what the gate rejects is counted too.
    app.add_middleware(Gate, host=host, hosts=hosts, token=token, limits=registry.limits)
    app.add_middleware(Monitor, metrics=registry.metrics)
    return app


class Monitor:
    """Middleware that counts and times every request, and turns an unexpected exception into a 500 response."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        self._metrics.begin()
        try:
            await self._app(scope, receive, send_noting_status)
        except Exception as problem:  # noqa: BLE001 -- the client gets one line, the log another
            logger.error("%s %s: %s: %s", scope["method"], scope["path"], type(problem).__name__, first_line(problem))  # noqa: TRY400
            if status == 0:
                response = error_response(HTTPException(500, "unexpected error: see the server's log"))
                await response(scope, receive, send_noting_status)
        finally:
            route = getattr(scope.get("route"), "path", None) or "other"
            verb = scope["method"] if scope["method"] in {"GET", "POST", "HEAD", "OPTIONS"} else "other"
            # No response was sent: the client had left.
            self._metrics.request(route, verb, status or 499, time.perf_counter() - began)


async def _load(registry: Registry, on_loaded: Callable[[], None]) -> None:
    await registry.start()
    on_loaded()


def _add_pages(app: FastAPI, registry: Registry, *, token: bool) -> None:
    make: Callable[[], dict[str, Any]] = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema.complete(make(), registry, token=token)
        assert app.openapi_schema is not None
        return app.openapi_schema

    async def metrics() -> Response:
        return Response(registry.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi() -> Response:
        return json_response(document())

    async def docs() -> Response:
        headers = {"Content-Security-Policy": page.POLICY}
        return Response(page.render(document()), media_type="text/html", headers=headers)

    setattr(app, "openapi", document)  # noqa: B010 -- FastAPI's documented way; mypy refuses to assign to a method
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text format."}
    app.add_api_route("/metrics", metrics, methods=["GET"], summary="Metrics", responses={200: text})
    app.add_api_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)


async def _to_docs() -> Response:
    return Response(status_code=307, headers={"Location": "docs"})


async def _on_error(_: Request, problem: Exception) -> Response:
    """The same form for every error, ours and the framework's."""
    if isinstance(problem, RequestValidationError):
        return error_response(HTTPException(422, _first_reason(problem)))
    return error_response(problem if isinstance(problem, HTTPException) else HTTPException(422, first_line(problem)))


def _first_reason(problem: RequestValidationError) -> str:
    """What is wrong with the first value that does not fit; the exception's own text holds all of the input."""
    first = problem.errors()[0]
    place = ".".join(str(part)[:40] for part in first["loc"][1:6])
    return f"{place}: {first['msg']}"[:200] if place else str(first["msg"])[:200]
