"""Access: the checks that every request passes first.

- Host: a name that we serve, so that no other page can point its own name at this machine (DNS rebinding);
- Origin: our own, where a browser sends one;
- Sec-Fetch-Site: our own page or the user, where a browser says so; an image tag elsewhere sends no Origin;
- Content-Type: never one that a plain HTML form can send;
- a bearer token, where the server has one: it needs one to listen beyond this machine.

Then every body is counted while it arrives, whoever reads it, and the work of a client that has left is cancelled.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from bayesify.serving.bodies import BodyBudget, CountedBody
from bayesify.serving.connections import RESERVED
from bayesify.serving.errors import error_response, retry_later
from bayesify.serving.input_arrays import ARRAYS, JPEG, JSON, PNG, too_large
from bayesify.serving.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_TYPES = {JSON, PNG, JPEG, *ARRAYS}
# A health check has no token; nor does the browser that loads the studio's page, which holds no data.
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready", "/v1/health")
# Pages that a link on another site may open. They hold no data and start no work.
_LINKED_PATHS = ("/", "/docs")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Gate:
    """The checks, as middleware.

    Args:
        app: the application behind it.
        host: the address that the server listens on.
        hosts: further names that clients may call it by; `*` is any.
        token: the bearer token of every request; None for a server that only this machine can reach.
        limits: of a body, announced or counted, of its time, and of all bodies together.

    """

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", hosts: Sequence[str] = (), token: str | None, limits: Limits
    ) -> None:
        self._app = app
        self._local = is_loopback(host)
        self._allowed = {name.casefold() for name in hosts}
        self._names = {*_LOCAL_NAMES, host.casefold()} | self._allowed
        self._token = None if token is None else token.encode()
        self._limits = limits
        self._budget = BodyBudget(limits.memory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond with an error."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There are no websockets here.
            await send({"type": "websocket.close", "code": 1008})
            return
        send = send_with_headers(send)
        try:
            self._check(scope)
        except HTTPException as problem:
            await error_response(problem)(scope, receive, send)
            return
        body = CountedBody(scope, receive, send, self._limits, self._budget)
        await body.run(self._app)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        if scope.get("state", {}).get(RESERVED) and not _is_health_check(scope):
            raise retry_later(429, "too many connections: try again in a moment")
        host = _header(headers, b"host")
        if host is None or not self._is_ours(host):
            raise HTTPException(421, "this server does not serve that Host: see --allow-host")
        origin = _header(headers, b"origin")
        if origin is not None and not self._is_own_page(origin, host):
            raise HTTPException(403, "requests from pages of another origin are refused")
        if _header(headers, b"sec-fetch-site") not in {None, "same-origin", "none"} and not _is_link(scope):
            raise HTTPException(403, "requests from pages of another origin are refused")
        length = _header(headers, b"content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit()):
                raise HTTPException(400, "Content-Length must be a whole number")
            if len(length) > 18 or int(length) > self._limits.body:
                raise too_large(self._limits)
        kind = _header(headers, b"content-type")
        if kind is not None and kind.partition(";")[0].strip().lower() not in BODY_TYPES:
            raise HTTPException(415, f"the Content-Type must be one of {', '.join(sorted(BODY_TYPES))}")
        if self._token is not None and not _is_open(scope):
            scheme, _, token = (_header(headers, b"authorization") or "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
                challenge = {"WWW-Authenticate": "Bearer"}
                raise HTTPException(401, "this server needs its token: Authorization: Bearer TOKEN", challenge)

    def _is_ours(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        if name in self._names or "*" in self._names:
            return True
        # DNS rebinding cannot forge a bare address, and a server that others can reach may have several.
        return not self._local and _is_address(name)

    def _is_own_page(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        # Another port of this machine is another origin. An allowed name may be that of a proxy in front of us.
        own = parts.netloc.casefold() == host.casefold() or name.casefold() in self._allowed
        return parts.scheme in {"http", "https"} and own


def send_with_headers(send: Send) -> Send:
    """`send` with the headers that every response has unless it sets them itself."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in names)]
        await send(message)

    return wrapped


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise HTTPException(400, f"more than one {name.decode()} header")
    return values[0].decode("latin-1") if values else None


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port and brackets; None where it is malformed."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", host)
    return None if match is None else (match[1] or match[2]).casefold()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    page = path == "/" or (path.startswith("/studio") and not path.startswith("/studio/api"))
    return _is_health_check(scope) or (_reads(scope) and page)


def _is_health_check(scope: Scope) -> bool:
    return _reads(scope) and scope["path"] in OPEN_PATHS


def _is_link(scope: Scope) -> bool:
    return (
        _reads(scope) and scope["path"] in _LINKED_PATHS and _header(scope["headers"], b"sec-fetch-mode") == "navigate"
    )


def _reads(scope: Scope) -> bool:
    return scope["method"] in {"GET", "HEAD"}
