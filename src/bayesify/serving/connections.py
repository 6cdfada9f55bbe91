"""Connections with limits: what a client may send, hold open and leave unread before anybody asks who it is.

uvicorn bounds neither the head of a request nor its time. Here a head has a size and a time, a body may not hide bytes
in chunk extensions and trailers, and a client that does not read is dropped. When all connections are taken, one that
is idle between two requests gives way, or one whose head is incomplete after two seconds; otherwise the new one comes
into a small reserve, where only health checks are answered. A full reserve drops its oldest connection whose head is
incomplete.

Who is refused is told so. A socket that is closed while bytes of the client are unread resets the connection, and the
client may lose the response: so a refused connection is first closed for writing, and what still arrives is thrown away
for a second.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bayesify.serving.limits import Limits

# The key of a scope's state that marks a request on a connection of the reserve.
RESERVED = "bayesify.reserved"
# Requests that may wait on a connection behind the one in progress.
_PIPELINED = 8
# Files beside connections: the listening socket, the event loop, the libraries, a run's data.
_OTHER_FILES = 64
# A health check is small: its head comes at once.
_RESERVE_SECONDS = _SLOW_SECONDS = 2.0
# A client that was refused has this long to finish sending and to read the refusal.
_LINGER_SECONDS = 1.0
_MOST_LINGERING = 1000
# A larger part of a response is sent at once.
_HELD_BYTES = 1 << 14
# Bodies of this many times the limit are read and thrown away, so that the client sees the refusal.
_THROWN_AWAY = 4


def connection_limit(limits: Limits) -> int:
    """The number of ordinary connections: `limits.connections`, or fewer where the process may open few files.

    The event loop accepts all connections that wait before it looks at the first: as many again stay free for them.
    """
    return max(1, min(limits.connections, (_files() - _OTHER_FILES - 2 * limits.reserve) // 2))


def lingering_limit(limits: Limits) -> int:
    """The number of refused connections that may still read their refusal; further ones are closed at once."""
    most = connection_limit(limits)
    return max(limits.reserve, min(_MOST_LINGERING, _files() - _OTHER_FILES - limits.reserve - 2 * most))


def _files() -> int:
    """How many files the process may open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return 1 << 20
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if files == resource.RLIM_INFINITY else files


def protocol_of(limits: Limits) -> type[BoundedProtocol]:
    """The protocol of a server with these limits; its connections are counted together."""
    return type("Protocol", (BoundedProtocol,), {"limits": limits, "table": ConnectionTable(limits)})


class ConnectionTable:
    """All open connections of a server, the oldest first, and who gives way when there are too many."""

    def __init__(self, limits: Limits) -> None:
        self.most = connection_limit(limits)
        self.most_lingering = lingering_limit(limits)
        self.reserve = limits.reserve
        self.ordinary: dict[BoundedProtocol, None] = {}
        self.reserved: dict[BoundedProtocol, None] = {}
        # Idle connections, those that have waited longest first.
        self.idle: dict[BoundedProtocol, None] = {}
        # Refused, and closed for writing.
        self.lingering: set[BoundedProtocol] = set()

    def admit(self, connection: BoundedProtocol) -> bool:
        """Give a new connection its place; False where there is none."""
        if len(self.ordinary) >= self.most:
            others = self.idle or (other for other in self.ordinary if other.is_slow)
            if other := next(iter(others), None):
                other.drop()
        if len(self.ordinary) < self.most:
            self.ordinary[connection] = None
            return True
        if len(self.reserved) >= self.reserve:
            oldest = next((other for other in self.reserved if other.awaits_head), None)
            if oldest is None:
                return False
            oldest.drop()
        self.reserved[connection] = None
        return True

    def remove(self, connection: BoundedProtocol) -> None:
        """Free the place of a connection that has ended, or is about to."""
        for connections in (self.ordinary, self.reserved, self.idle):
            connections.pop(connection, None)
        self.lingering.discard(connection)


class JoinedWrites(asyncio.Transport):
    """What responses are written to: the head of a response leaves with the first part of its body, in one send.

    uvicorn writes them one after the other. A send costs more than the JSON of a small prediction.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held = b""
        self._turn: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hold the bytes until the next ones come, or until the event loop's next turn."""
        if self._held or len(data) > _HELD_BYTES:
            self._held += bytes(data)
            self.flush()
        elif data:
            self._held = bytes(data)
            self._turn = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what is held."""
        held, self._held = self._held, b""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Send what is held, then close."""
        self.flush()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's connection with limits; see `protocol_of`."""

    limits: ClassVar[Limits]
    table: ClassVar[ConnectionTable]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.in_head = True
        self._head = 0
        self._unread = 0
        self._silent = 0
        self._since = 0.0
        self._complete = True
        self._problem: tuple[int, str] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # The life of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._joined = JoinedWrites(transport, self.loop)
        if not self.table.admit(self):
            self.refuse(429, "too many connections: try again in a moment")
            return
        self._note_idle()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        for name in tuple(self._timers):
            self._cancel(name)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection to make room for another one."""
        self.table.remove(self)
        if self._head or self.cycle is None:
            self.refuse(429, "too many connections: try again in a moment")
        else:
            # Between two requests: a client opens another connection by itself.
            self._close()

    def refuse(self, status: int, message: str) -> None:
        """Respond with an error and close; while another response is being sent, only close."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": message}).encode()
            retry = b"retry-after: 1\r\n" if status in {429, 503} else b""
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-length: {len(body)}\r\n".encode()
            safe = b"content-type: application/json\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
            self.transport.write(head + retry + safe + body)
            self._linger()
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        self.refuse(*(self._problem or (400, "this is not an HTTP request")))

    # What arrives

    def data_received(self, data: bytes) -> None:
        self.table.idle.pop(self, None)
        view, step = memoryview(data), self.limits.head
        if self in self.table.lingering:
            self._throw_away(len(view))
            return
        while view and not self._is_over:
            if self.in_head:
                room = step - self._head
                if room <= 0:
                    self.refuse(431, f"the request line and the headers may have {step:,} bytes")
                    return
                part, view = view[:room], view[room:]
                self._head += len(part)
            else:
                part, view = view[:step], view[step:]
                self._silent += len(part)
            super().data_received(bytes(part))
            if self._silent > 2 * step:
                # Bytes that are no body: chunk extensions or trailers.
                self._close()
        begun = self._head > 0 or not self._complete
        if self.in_head and begun and "head" not in self._timers and not self._is_over:
            self._expect_head()

    def on_message_begin(self) -> None:
        self.in_head, self._complete = True, False
        self._silent = self._unread = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self.limits.url:
            self._fail(414, f"the address may have {self.limits.url:,} bytes")
        super().on_url(url)

    def on_headers_complete(self) -> None:
        self._cancel("head")
        self.in_head, self._head, self._silent = False, 0, 0
        if len(self.pipeline) >= _PIPELINED:
            self._fail(400, "too many requests wait on this connection")
        self.scope["state"][RESERVED] = self in self.table.reserved
        super().on_headers_complete()
        self.cycle.transport = self._joined

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        if self.cycle.response_complete:
            # What follows a refusal is read and thrown away, so that the client sees the response, up to a point.
            self._throw_away(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._complete, self.in_head = True, True
        self._cancel("rest")
        super().on_message_complete()
        self._note_idle()

    # What leaves

    def on_response_complete(self) -> None:
        self._joined.flush()
        super().on_response_complete()
        if self in self.table.reserved and not self.transport.is_closing():
            # One request each: its place is for the next health check.
            self._linger()
        elif self.transport.is_closing():
            self._after("read", self.limits.seconds, self._abort)
        elif not self._complete:
            self._after("rest", self.limits.head_seconds, self._close)
        else:
            self._note_idle()

    def pause_writing(self) -> None:
        self._after("read", self.limits.seconds, self._abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._cancel("read")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    # Helpers

    @property
    def _is_over(self) -> bool:
        return self.transport.is_closing() or self in self.table.lingering

    def _linger(self) -> None:
        """Close for writing and wait for the client to close, a little while."""
        if len(self.table.lingering) >= self.table.most_lingering:
            self._close()
            return
        self.table.remove(self)
        self.table.lingering.add(self)
        self._cancel("head")
        self.transport.write_eof()
        self._after("read", _LINGER_SECONDS, self._abort)

    def _throw_away(self, count: int) -> None:
        self._unread += count
        if self._unread > _THROWN_AWAY * self.limits.body:
            self._close()

    def _fail(self, status: int, message: str) -> None:
        """Stop the parser, whose caller then sends this refusal."""
        self._problem = status, message
        raise ValueError(message)

    def _note_idle(self) -> None:
        """Before and between requests the connection may have to give way."""
        if (
            self in self.table.ordinary
            and self._complete
            and not self.pipeline
            and (self.cycle is None or self.cycle.response_complete)
        ):
            self.table.idle[self] = None

    @property
    def awaits_head(self) -> bool:
        """Whether the head of a request is incomplete, and no response to an earlier one is being made."""
        return self.in_head and (self.cycle is None or self.cycle.response_complete)

    @property
    def is_slow(self) -> bool:
        """Whether it has waited long enough for the rest of a head, when others wait for a connection."""
        return self.in_head and "head" in self._timers and self.loop.time() - self._since > _SLOW_SECONDS

    def _expect_head(self) -> None:
        self._since = self.loop.time()
        self._after("head", self._head_seconds, self._end_head)

    @property
    def _head_seconds(self) -> float:
        reserved = self in self.table.reserved
        return min(self.limits.head_seconds, _RESERVE_SECONDS) if reserved else self.limits.head_seconds

    def _end_head(self) -> None:
        if self._head:
            self.refuse(408, f"the headers did not arrive within {self._head_seconds:g} seconds")
        else:
            self._close()

    def _close(self) -> None:
        """Close once everything is written; a client that does not read it has a while."""
        if not self.transport.is_closing():
            self.transport.close()
            self._after("read", self.limits.seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()

    def _after(self, name: str, seconds: float, call: Any) -> None:
        self._cancel(name)
        self._timers[name] = self.loop.call_later(seconds, call)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
