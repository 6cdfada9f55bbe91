"""Who may ask: the checks that every request passes before anything else looks at it.

- Host: a name that we serve, so that a page elsewhere cannot point a name of its own at this machine (DNS rebinding);
- Origin: where a browser gives one, our own;
- the type of a body: never one that a plain HTML form can send;
- a bearer token, where the server was given one: it must have one to listen beyond this machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bayesify.serving.limits import Limits
from bayesify.serving.payloads import ARRAYS, JPEG, JSON, PNG, too_large
from bayesify.serving.refusals import Refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_TYPES = {JSON, PNG, JPEG, *ARRAYS}
# A monitor that asks whether we live has no token, and the studio's page is code without data: it asks for the token.
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready", "/v1/health")
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
    """The checks, as a layer around the application.

    Args:
        app: what is behind it.
        host: the address that the server listens on.
        hosts: further names that clients may call it by; `*` is any.
        token: that every request must bear; None on this machine alone.
        limits: of a body, refused by its announced length before it is read.

    """

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", hosts: Sequence[str] = (), token: str | None, limits: Limits
    ) -> None:
        self._app = app
        self._local = is_loopback(host)
        self._given = {name.casefold() for name in hosts}
        self._names = {*_LOCAL_NAMES, host.casefold()} | self._given
        self._token = None if token is None else token.encode()
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # There is no other protocol here, and refusing is what a closed connection says.
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self._check(scope)
        except Refusal as refusal:
            await refuse(send_with_headers(send), refusal)
            return
        await self._app(scope, receive, send_with_headers(send))

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        host = _one(headers, b"host")
        if host is None or not self._is_ours(host):
            raise Refusal(421, "the Host is not one that this server answers to: see --allow-host")
        origin = _one(headers, b"origin")
        if origin is not None and not self._is_own_page(origin, host):
            raise Refusal(403, "requests from pages of another origin are refused")
        length = _one(headers, b"content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit()):
                raise Refusal(400, "Content-Length must be a whole number")
            if len(length) > 18 or int(length) > self._limits.body:
                raise too_large(self._limits)
        kind = _one(headers, b"content-type")
        if kind is not None and kind.partition(";")[0].strip().lower() not in BODY_TYPES:
            raise Refusal(415, f"the Content-Type must be one of {', '.join(sorted(BODY_TYPES))}")
        if self._token is not None and not _is_open(scope):
            given = (_one(headers, b"authorization") or "").partition(" ")
            if given[0].lower() != "bearer" or not hmac.compare_digest(given[2].strip().encode(), self._token):
                challenge = {"WWW-Authenticate": "Bearer"}
                raise Refusal(401, "this server needs its token: Authorization: Bearer TOKEN", challenge)

    def _is_ours(self, host: str) -> bool:
        name = _host_name(host)
        if name is None:
            return False
        if name in self._names or "*" in self._names:
            return True
        # No name leads to a bare address, so rebinding cannot forge one; beyond this machine we may have several.
        return not self._local and _is_address(name)

    def _is_own_page(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        # Another port of this machine is another origin; a name that was allowed may stand for a proxy in front of us.
        own = parts.netloc.casefold() == host.casefold() or name.casefold() in self._given
        return parts.scheme in {"http", "https"} and own


def send_with_headers(send: Send) -> Send:
    """The same, with the headers that every answer has unless it sets them itself."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in given)]
        await send(message)

    return wrapped


async def refuse(send: Send, refusal: Refusal) -> None:
    """Send a refusal without any framework."""
    pairs = {"content-type": JSON, "content-length": str(len(refusal.body)), **refusal.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in pairs.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})


def _one(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise Refusal(400, f"more than one {name.decode()} header")
    return found[0].decode("latin-1") if found else None


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
    return scope["method"] in {"GET", "HEAD"} and (path in OPEN_PATHS or page)
