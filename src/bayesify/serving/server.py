"""Running the application: one process, one event loop, and a shutdown that finishes the accepted requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

from bayesify.serving.allocator import limit_arenas
from bayesify.serving.app import create_app
from bayesify.serving.connections import protocol_of
from bayesify.serving.models import Registry

# Seconds for clients to notice, after SIGTERM, that their connection ends with the next response.
_DRAINING = 1.0


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address; a ValueError says why it cannot be."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be 0 to 65535, got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ValueError(f"cannot listen on {host!r}: there is no such address") from None
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
    except OSError as problem:
        opened.close()
        if problem.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} of {host} is in use: choose another with --port") from None
        raise ValueError(f"cannot listen on port {port} of {host}: {problem.strerror}") from None
    return opened


def address_of(opened: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- shown as an address that a browser can open
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """A server that finishes its requests before it ends, and does not raise the signal again.

    A first Ctrl-C prints how many requests are being finished; a second one stops at once, whatever torch is doing.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        in_progress: Callable[[], int] = lambda: 0,
        closing: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__(config)
        self._in_progress = in_progress
        self._closing = closing
        self._drains = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            # The interpreter would wait for torch's thread, which cannot be interrupted.
            sys.stdout.flush()
            os._exit(130)
        count = self._in_progress()
        self._drains = sig == signal.SIGTERM
        # Before the message: the next interrupt may come while it is printed.
        super().handle_exit(sig, frame)
        if sig == signal.SIGINT and count:
            requests = "1 request" if count == 1 else f"{count} requests"
            print(f"finishing {requests}; Ctrl-C again stops now", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what does not end by itself, then finish the rest."""
        for close in self._closing:
            close()
        if self._drains:
            await self._drain()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Answer what clients send over open connections for a moment, and tell them to connect anew.

        A request may be on its way when its connection is closed: a client that keeps one open would lose it.
        """
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        until = time.monotonic() + _DRAINING
        while self.server_state.connections and time.monotonic() < until:  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0.01)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(
    registry: Registry,
    *,
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    token: str | None = None,
    pages: Callable[[FastAPI, Registry], None] | None = None,
    on_loaded: Callable[[], None] = lambda: None,
) -> Server:
    """A server ready to `run(sockets=[listen(...)])`; it ends by itself where loading fails. See `create_app`."""

    def loaded() -> None:
        if registry.failure is not None:
            server.should_exit = True
        on_loaded()

    limit_arenas()
    # What a client's file makes Pillow remark on is not for the server's log. Filters belong to the process, not to a
    # thread: they are set once, here.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    app = create_app(registry, host=host, hosts=hosts, token=token, pages=pages, on_loaded=loaded)
    protocol = protocol_of(registry.limits)
    config = uvicorn.Config(
        app,
        http=protocol,
        # As many as the event loop accepts at once: see `connection_limit`.
        backlog=min(128, protocol.table.most),
        log_level="error",
        access_log=False,
        server_header=False,
        # Nothing here depends on what a proxy says about a client.
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=int(registry.limits.seconds) + 5,
    )
    server = Server(config, lambda: registry.metrics.in_progress, app.state.closing)
    return server
