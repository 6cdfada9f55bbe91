"""The Understand page: points of the plane, and training as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from torch import Tensor

from bayesify.errors import TrainingError, first_line
from bayesify.methods import CARDS, Method
from bayesify.studio import asking, watched_training
from bayesify.studio.models import API, DrawCount, Seed
from bayesify.studio.routes import StudioRoute
from bayesify.studio.turns import Turns
from bayesify.studio.watched_training import Square, TrainingRequest

KEPT = 16
AT_ONCE = 2
logger = logging.getLogger("bayesify")
_BUSY = f"{AT_ONCE} networks are training already: wait for one to finish"


class Trainings:
    """Trainings in progress, and the last few trained methods, for their draws."""

    def __init__(self, turns: Turns | None = None) -> None:
        self.closed = threading.Event()
        self._turns, self._lock = turns or Turns(), threading.Lock()
        self._trained: OrderedDict[str, tuple[Method, Square]] = OrderedDict()
        self._inputs: dict[str, Tensor] = {}
        self._stops: set[Callable[[], None]] = set()
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._threads: set[threading.Thread] = set()

    def begin(self) -> None:
        """Take a place for a training; a 429 error where there is none."""
        if not self._slots.acquire(blocking=False):
            raise HTTPException(429, _BUSY, headers={"Retry-After": "2"})

    def check_room(self) -> None:
        """Raise the error of `begin` where there is no place now."""
        self.begin()
        self.end()

    async def room(self, seconds: float = 3.0) -> None:
        """Wait for a place: a training whose page was closed ends at its next step.

        Args:
            seconds: the longest wait, after which the error of `begin` is raised.

        """
        until = time.monotonic() + seconds
        while True:
            try:
                self.check_room()
            except HTTPException:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(0.1)
            else:
                return

    def end(self) -> None:
        """Give the place back."""
        self._slots.release()

    def watch(self, stop: Callable[[], None], thread: threading.Thread) -> None:
        """Remember how to stop a training in progress, and its thread."""
        self._stops.add(stop)
        self._threads = {other for other in self._threads if other.is_alive()} | {thread}

    def leave(self, stop: Callable[[], None]) -> None:
        self._stops.discard(stop)

    def close(self) -> None:
        """Stop all trainings: the server shuts down."""
        self.closed.set()
        for stop in tuple(self._stops):
            stop()

    def wait(self, seconds: float = 20.0) -> None:
        """Wait for stopped trainings: a thread inside torch would break off the end of the process.

        Args:
            seconds: the longest time for all of them.

        """
        until = time.monotonic() + seconds
        for thread in tuple(self._threads):
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def keep(self, method: Method, request: TrainingRequest) -> str:
        name = uuid.uuid4().hex
        self._trained[name] = method, Square.of(request)
        self._inputs[name] = watched_training.tensors(request)[0]
        while len(self._trained) > KEPT:
            self._inputs.pop(self._trained.popitem(last=False)[0])
        return name

    def get(self, name: str) -> tuple[Method, Square]:
        if name not in self._trained:
            raise HTTPException(404, "this network is no longer in memory: train it again")
        return self._trained[name]

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[tuple[Method, Square]]:
        """A kept network, to work with while no other request does."""
        kept = self.get(name)
        with self._turns.take(self._lock):
            yield kept

    def inputs(self, name: str) -> Tensor:
        """The points that a kept network was trained on, `[points, 2]`."""
        self.get(name)
        return self._inputs[name]


def router(trainings: Trainings) -> APIRouter:
    """The page's routes."""
    routes = APIRouter(prefix=API, route_class=StudioRoute)

    @routes.get("/understand/options")
    def options() -> dict[str, Any]:
        return watched_training.options()

    @routes.get("/understand/points")
    def points(
        data: str = "moons",
        n: Annotated[int, Query(ge=4, le=600)] = 80,
        noise: Annotated[float, Query(ge=0, le=2)] = 0.15,
        seed: Seed = 0,
    ) -> dict[str, Any]:
        try:
            return {"points": watched_training.plane(data, n, noise, seed)}
        except ValueError as problem:
            raise HTTPException(422, str(problem)) from None

    @routes.post("/understand/train")
    async def train(request: TrainingRequest) -> StreamingResponse:
        try:
            watched_training.tensors(request)
            watched_training.build(request)
        except (ValueError, TypeError) as problem:
            raise HTTPException(422, str(problem)) from None
        if trainings.closed.is_set():
            raise HTTPException(503, "the server is shutting down: train again when it is back")
        await trainings.room()
        # A proxy must not buffer events.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(request, trainings), media_type="text/event-stream", headers=headers)

    @routes.get("/understand/draws")
    def draws(trained: str, draws: DrawCount = 6, seed: Seed = 0) -> dict[str, Any]:
        with trainings.turn(trained) as (method, square):
            surfaces = watched_training.surfaces(method, square, draws, seed)
        return {"side": watched_training.LATTICE, "held": method.held, "draws": surfaces}

    @routes.get("/understand/units")
    def units(trained: str, activation: Literal["tanh", "relu", "gelu"] = "tanh", seed: Seed = 0) -> dict[str, Any]:
        with trainings.turn(trained) as (method, square):
            shown = watched_training.hidden_units(method, square, activation, seed)
        return {"side": watched_training.LATTICE, "units": shown}

    @routes.get("/understand/ask")
    def ask(
        trained: str,
        by: Annotated[str, Query(max_length=40)] = "batchbald",
        n: Annotated[int, Query(ge=1, le=10)] = 5,
    ) -> dict[str, Any]:
        try:
            with trainings.turn(trained) as (method, square):
                return {"places": asking.places(method, square, trainings.inputs(trained), by, n)}
        except ValueError as problem:
            raise HTTPException(422, str(problem)) from None

    return routes


async def _events(request: TrainingRequest, trainings: Trainings) -> AsyncIterator[str]:
    loop, queue, stop = (
        asyncio.get_running_loop(),
        asyncio.Queue[tuple[str, dict[str, Any]] | None](),
        threading.Event(),
    )

    def send(event: tuple[str, dict[str, Any]] | None) -> None:
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, event)

    def work() -> None:
        try:
            method = watched_training.train(request, lambda shown: send(("frame", shown)), stop.is_set)
            send(("done", {"trained": trainings.keep(method, request)}))
        except watched_training.Stopped:
            pass
        except Exception as problem:  # noqa: BLE001 -- the page is told, whatever it was
            if not isinstance(problem, ValueError | TypeError | RuntimeError | TrainingError):
                logger.error("training in the studio: %s: %s", type(problem).__name__, first_line(problem))  # noqa: TRY400
            send(("problem", {"detail": next(iter(str(problem).splitlines()), type(problem).__name__)}))
        finally:
            trainings.end()
            send(None)

    def close() -> None:
        stop.set()
        send(("problem", {"detail": "the server is shutting down, and training ended with it"}))
        send(None)

    thread = threading.Thread(target=work, name="studio-training", daemon=True)
    # Only here, where the thread starts: a client may leave before its response begins.
    try:
        trainings.begin()
    except HTTPException as problem:
        yield _event("problem", {"detail": problem.detail})
        return
    trainings.watch(close, thread)
    thread.start()
    try:
        while (event := await queue.get()) is not None:
            yield _event(*event)
    finally:
        # Also when the browser has left: the thread ends at its next step.
        stop.set()
        trainings.leave(close)


def _event(kind: str, content: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(content)}\n\n"


def python(request: TrainingRequest) -> str:
    """The training in Python, with its points."""
    kind, square = type(watched_training.build(request)).__name__, Square.of(request)
    side = watched_training.LATTICE
    prior = None if request.prior in {"", "none"} else request.prior
    settings = watched_training.method_settings(CARDS[request.method])
    settings = {"prior": prior, "start": "fresh", "seed": request.seed, **settings}
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    fitting = ", ".join(f"{name}={value!r}" for name, value in watched_training.fit_settings(request).items())
    return f"""import torch

import bayesify as bf
from bayesify.studio.watched_training import Square, where_to_ask

points = torch.tensor({[list(point) for point in request.points]})
x, y = points[:, :2], points[:, 2].long()
network = bf.networks.mlp(2, 2, units={request.units}, layers={request.layers}, activation={request.activation!r})
bnn = bf.{kind}(network, bf.likelihoods.Categorical(classes=2), {arguments})
bnn.fit((x, y), {fitting})
# The centres of {side} x {side} cells of the page; the next label is asked for where the
# epistemic uncertainty is largest inside the box of the points.
lattice = Square({square.low}, {square.high}).lattice()
p = bnn.predict(lattice, draws={watched_training.DRAWS}, seed=0)
seen = bnn.predict(x, draws={watched_training.DRAWS}, seed=0)
print("train accuracy", float((seen.labels == y).double().mean()))
print("ask next at", where_to_ask(p.epistemic.double(), lattice, x))
"""
