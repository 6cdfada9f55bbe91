"""Several processes behind one port, with one copy of the weights.

The parent loads the models with one thread of torch and then forks: the workers read the same pages of memory. Each has
a listening socket of its own on the shared port, among which the kernel spreads connections. The parent keeps the
sockets open, so connections that arrive while a worker is replaced wait for its successor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from bayesify.errors import first_line
from bayesify.serving.metrics import forget_process
from bayesify.serving.models import Registry
from bayesify.serving.server import Server, listen
from bayesify.serving.watched_folders import Watched

# A worker that ends this soon after its start would end again.
_SOON, _MOST_SOON = 5.0, 3


@dataclass
class _Worker:
    slot: int
    began: float = field(default_factory=time.monotonic)


def listen_shared(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets of one port, among which the kernel spreads connections.

    Args:
        host: the address.
        port: the port; 0 takes a free one.
        count: how many.

    Returns:
        Bound sockets.

    Raises:
        ValueError: the port is in use, or there is no such address.

    """
    # Shared ports can be bound twice without an error: a socket that does not share finds out whether one is in use.
    with contextlib.closing(listen(host, port)) as probe:
        family, address = probe.family, probe.getsockname()
    sockets = []
    for _ in range(count):
        # asyncio switches Nagle's algorithm off where the socket names its protocol. With it, a response in two parts
        # waits 40 ms for the client's delayed acknowledgement of the first part.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.bind(address)
        # Listening from the start: a connection made before its worker is up waits.
        opened.listen(128)
        sockets.append(opened)
    return sockets


class Workers:
    """The parent of the workers: starts them, replaces what dies, and changes the models without a gap.

    SIGTERM and SIGINT end all workers once they have finished their requests. SIGHUP reads the run folders again, forks
    new workers and then ends the old ones; where reading fails, the old ones stay.

    Args:
        read: makes the registry of all models; called at the start and at each SIGHUP.
        make: makes a worker's server.
        sockets: one for each worker, see `listen_shared`.
        say: prints a line.
        threads: threads of torch in each worker.
        watched: folders whose changes count as SIGHUP.

    """

    def __init__(
        self,
        read: Callable[[], Registry],
        make: Callable[[Registry], Server],
        sockets: list[socket.socket],
        say: Callable[[str], None],
        threads: int = 1,
        watched: Watched | None = None,
    ) -> None:
        self._read, self._make, self._sockets, self._say, self._threads = read, make, sockets, say, threads
        self._folders = watched
        self._workers: dict[int, _Worker] = {}
        self._wanted: set[int] = set()
        self._soon = 0
        # Open for writing in the parent alone: its end tells the workers that the parent is gone, however it went.
        self._watched, self._alive = os.pipe()

    def run(self, on_ready: Callable[[Registry], None]) -> None:
        """Serve until a signal ends it.

        Args:
            on_ready: called in the parent once all workers run.

        Raises:
            RuntimeError: workers end as soon as they are started.

        """
        # Threads of torch would not survive the fork: none may have been started before it.
        torch.set_num_threads(1)
        registry = self._loaded()
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing)
        handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        try:
            self._start_all(registry)
            on_ready(registry)
            for number in _arriving(reading, self._folders):
                if number == signal.SIGHUP:
                    registry = self._renew(registry)
                elif number == signal.SIGCHLD:
                    self._replace_dead(registry)
                else:
                    break
        finally:
            self._end(set(self._workers))
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for descriptor in (reading, writing, self._watched, self._alive):
                os.close(descriptor)

    def _loaded(self) -> Registry:
        registry = self._read()
        registry.load()
        # Collections would write to every object, and so copy the pages that are shared.
        gc.collect()
        gc.freeze()
        return registry

    def _start_all(self, registry: Registry) -> None:
        self._wanted = {self._start(registry, slot) for slot in range(len(self._sockets))}

    def _start(self, registry: Registry, slot: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        number = os.fork()
        if number == 0:
            self._serve(registry, slot)
        self._workers[number] = _Worker(slot)
        return number

    def _serve(self, registry: Registry, slot: int) -> None:
        """What a worker does, to its end."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.close(self._alive)
            threading.Thread(target=self._end_with_parent, daemon=True).start()
            torch.set_num_threads(self._threads)
            server = self._make(registry)
            server.run(sockets=[self._sockets[slot]])
            code = 0
        except BaseException as problem:  # noqa: BLE001 -- nothing of the parent may run on in a child
            print(f"a worker failed: {type(problem).__name__}: {problem}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _end_with_parent(self) -> None:
        os.read(self._watched, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _replace_dead(self, registry: Registry) -> None:
        for number, status in _ended():
            worker = self._workers.pop(number, None)
            forget_process(number)
            if worker is None or number not in self._wanted:
                continue
            self._wanted.discard(number)
            self._soon = self._soon + 1 if time.monotonic() - worker.began < _SOON else 1
            if self._soon > _MOST_SOON:
                raise RuntimeError(f"workers end as soon as they start ({_reason(status)})")
            self._wanted.add(self._start(registry, worker.slot))
            self._say(f"a worker ended ({_reason(status)}); another has taken its place")

    def _renew(self, registry: Registry) -> Registry:
        try:
            new = self._loaded()
        except Exception as problem:  # noqa: BLE001 -- what is served goes on
            self._say(f"the models stay as they are: {first_line(problem)}")
            return registry
        old = set(self._workers)
        self._start_all(new)
        self._end(old)
        self._say(f"now serving {', '.join(new.names())}")
        return new

    def _end(self, numbers: set[int]) -> None:
        """Ask workers to finish, and wait."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGTERM)
        for number in numbers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(number, 0)
            self._workers.pop(number, None)
            forget_process(number)


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def _arriving(reading: int, watched: Watched | None) -> Iterator[int]:
    """Signals, as they come; a change of the watched folders counts as SIGHUP."""
    while True:
        ready, _, _ = select.select([reading], [], [], None if watched is None else watched.seconds)
        if ready:
            yield from os.read(reading, 1)
        elif watched is not None and watched.changed():
            yield signal.SIGHUP


def _ended() -> Iterator[tuple[int, int]]:
    """Children that have ended: number and status."""
    with contextlib.suppress(ChildProcessError):
        while True:
            number, status = os.waitpid(-1, os.WNOHANG)
            if number == 0:
                return
            yield number, status


def _reason(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
