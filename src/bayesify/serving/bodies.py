"""The body of a request, counted while it arrives, whichever part of the application reads it.

A body has a size and a time, and all bodies in progress share a budget of memory. After the body the connection is
watched: when the client leaves, the request's task is cancelled, and with it everything that waits in the queue for it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from bayesify.serving.errors import error_response, retry_later
from bayesify.serving.input_arrays import JSON, check_json_size, json_size, too_large
from bayesify.serving.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A byte of a body may become a 64-bit number.
_GROWTH = 9
_leaving: ContextVar[asyncio.Event | None] = ContextVar("_leaving", default=None)


def client_has_left() -> bool:
    """Whether the client that this code works for has closed its connection; also in the thread of a route."""
    left = _leaving.get()
    return left is not None and left.is_set()


class BodyBudget:
    """Bytes that all requests in progress may take.

    Args:
        most: how many.

    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def take(self, size: int) -> None:
        """Count further bytes of a body; a 503 error where there is no room for them."""
        if self.used and self.used + _GROWTH * size > self.most:
            raise retry_later(503, "the requests in progress take all memory that they may: try again in a moment")
        self.used += _GROWTH * size

    def free(self, size: int) -> None:
        """Give the bytes of a finished request back."""
        self.used -= _GROWTH * size


class CountedBody:
    """One request with its body counted and its client watched.

    Args:
        scope: of the request.
        receive: where its messages come from.
        send: where its response goes.
        limits: `body`, `decoded` and `seconds`.
        budget: of all bodies.

    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits, budget: BodyBudget) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._limits, self._budget = limits, budget
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        # The bytes behind the JSON part of a v2 body are no JSON: that part is checked when it is cut off.
        self._json = kind == JSON.encode() and b"inference-header-content-length" not in headers
        self._expected = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        self._size = self._objects = 0
        self._deadline = asyncio.get_running_loop().time() + limits.seconds
        self._first: Message | None = None
        self._whole = self._responded = False
        self._left = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp) -> None:
        """Let the application respond; returns without a response where the client has left."""
        self._task = asyncio.current_task()
        _leaving.set(self._left)
        try:
            if not self._expected:
                self._first = await self._next()
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._left.is_set() or self._task is None or self._task.uncancel():
                raise
        except ClientDisconnect:
            self._left.set()
        except HTTPException as problem:
            # A middleware or a route that does not handle it.
            await error_response(problem)(self._scope, self._receive, self._send)
        finally:
            self._budget.free(self._size)
            if self._watcher is not None:
                self._watcher.cancel()

    async def receive(self) -> Message:
        """The next part of the body, or the news that the client has left."""
        if self._first is not None:
            message, self._first = self._first, None
            return message
        if not self._whole:
            return await self._next()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._responded = True
        await self._send(message)

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            reason = f"the body did not arrive within {self._limits.seconds:g} seconds"
            raise HTTPException(408, reason, {"Connection": "close"}) from None
        if message["type"] != "http.request":
            self._left.set()
            self._whole = True
            return message
        self._count(message.get("body", b""))
        if not message.get("more_body", False):
            self._whole = True
            self._watcher = asyncio.create_task(self._watch())
        return message

    def _count(self, part: bytes) -> None:
        if self._size + len(part) > self._limits.body:
            raise too_large(self._limits)
        self._budget.take(len(part))
        self._size += len(part)
        if self._json:
            self._objects += json_size(part)
            check_json_size(self._objects, self._limits)

    async def _watch(self) -> None:
        message = await self._receive()
        while message["type"] == "http.request":
            message = await self._receive()
        if not self._responded:
            self._left.set()
            if self._task is not None:
                self._task.cancel()
