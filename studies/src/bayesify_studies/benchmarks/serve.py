"""How many single-image requests a second the server answers, a Bayesian network against a plain one.

Both networks have the demo's shape (64-100-10, digits) and live in one server, a process of its own. This process only
sends: each of some connections asks, waits for the whole answer and asks again, with as little Python as possible,
since it shares the cores with what it measures. The two take turns in short rounds, so that a change in the machine's
mood hits both; medians over rounds are compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PLAIN, OURS = "plain", "variational"
_IMAGES = 64


def measure(
    *,
    draws: int = 30,
    connections: int = 32,
    rounds: int = 5,
    seconds: float = 2.0,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Requests a second and latencies of both, and the ratio of their rates."""
    rounds_of: dict[str, list[_Load]] = {PLAIN: [], OURS: []}
    with tempfile.TemporaryDirectory() as folder:
        progress("training both networks")
        runs = _train(Path(folder))
        with _served(runs, draws) as address:
            asked = {name: _requests(address, name, draws) for name in rounds_of}
            for number in range(-1, rounds):
                progress("warming up" if number < 0 else f"round {number + 1} of {rounds}")
                for name, loads in rounds_of.items():
                    load = asyncio.run(_drive(address, asked[name], connections, 0.5 if number < 0 else seconds))
                    if number >= 0:
                        loads.append(load)
    rates = {name: [len(load.latencies) / load.elapsed for load in loads] for name, loads in rounds_of.items()}
    ratios = sorted(plain / ours for plain, ours in zip(rates[PLAIN], rates[OURS], strict=True))
    result = {
        "ratio": statistics.median(rates[PLAIN]) / statistics.median(rates[OURS]),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
    }
    for name, loads in rounds_of.items():
        result[f"{name}_per_second"] = statistics.median(rates[name])
        for level in (50, 99):
            middle = statistics.median(_quantile(load.latencies, level / 100) for load in loads)
            result[f"{name}_p{level}_ms"] = 1e3 * middle
    about = {"draws": draws, "connections": connections, "rounds": rounds, "seconds": seconds, "cores": os.cpu_count()}
    return {**result, **about}


@dataclass
class _Load:
    """What the connections of a round saw."""

    requests: list[bytes]
    until: float
    latencies: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    failure: str | None = None


class _Connection(asyncio.Protocol):
    """One request at a time over one connection, as long as the round lasts."""

    def __init__(self, load: _Load, number: int, done: asyncio.Future[None]) -> None:
        self._load, self._next, self._done = load, number, done
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._needed = 0
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._needed:
            head = self._received.find(b"\r\n\r\n")
            if head < 0:
                return
            length = self._received.lower().index(b"content-length:") + 15
            self._needed = head + 4 + int(self._received[length : self._received.index(b"\r", length)])
        if len(self._received) < self._needed:
            return
        now = time.perf_counter()
        if not self._received.startswith(b"HTTP/1.1 200"):
            self._load.failure = self._received.decode("latin-1")
            self._finish()
            return
        self._load.latencies.append(now - self._began)
        if now >= self._load.until:
            self._finish()
        else:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._load.failure = self._load.failure or "the server closed a connection"
            self._done.set_result(None)

    def _ask(self) -> None:
        assert self._transport is not None
        self._received, self._needed = b"", 0
        self._next = (self._next + 1) % len(self._load.requests)
        self._began = time.perf_counter()
        self._transport.write(self._load.requests[self._next])

    def _finish(self) -> None:
        assert self._transport is not None
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()


async def _drive(address: str, requests: list[bytes], connections: int, seconds: float) -> _Load:
    loop = asyncio.get_running_loop()
    place = urlsplit(address)
    assert place.hostname is not None
    began = time.perf_counter()
    load = _Load(requests, began + seconds)
    done = [loop.create_future() for _ in range(connections)]
    for number, future in enumerate(done):
        await loop.create_connection(partial(_Connection, load, number, future), place.hostname, place.port or 80)
    await asyncio.gather(*done)
    load.elapsed = time.perf_counter() - began
    if load.failure is not None:
        raise RuntimeError(f"the server refused: {load.failure.splitlines()[0]}")
    return load


def _requests(address: str, model: str, draws: int) -> list[bytes]:
    """Whole HTTP requests for different digits."""
    from sklearn.datasets import load_digits

    place = urlsplit(address)
    made = []
    for image in load_digits().images[:_IMAGES]:
        tensor = {"name": "input", "shape": [1, 8, 8], "datatype": "UINT8", "data": image.ravel().astype(int).tolist()}
        body = json.dumps({"inputs": [tensor], "parameters": {"draws": draws, "seed": 0}}).encode()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return made


def _train(folder: Path) -> list[Path]:
    """Both networks, for a few epochs: what they answer does not matter, only what it costs."""
    from bayesify.workflows.recipe import Recipe
    from bayesify.workflows.train import train

    made = []
    for name, method in ((PLAIN, "point"), (OURS, "variational")):
        recipe = Recipe(data="digits", method=method, units=(100,), layers=1, epochs=3, normalise="standard")
        made.append(train(recipe, folder / name, progress=False).run)
    return made


@contextmanager
def _served(runs: list[Path], draws: int) -> Iterator[str]:
    """A server of its own process, until it is no longer needed; its address."""
    options = ["--port", "0", "--draws", str(draws), "--no-studio", "--json"]
    command = [sys.executable, "-m", "bayesify", "serve", *map(str, runs), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 -- our own command
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("the server did not start; it says why above")
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            process.wait(timeout=30)


def _quantile(values: list[float], level: float) -> float:
    return sorted(values)[min(len(values) - 1, int(level * len(values)))]
