"""The Understand page: points of the plane, and training that streams to the browser as server-sent events."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse

from bayesify.errors import TrainingError
from bayesify.methods import Method
from bayesify.studio import training
from bayesify.studio.models import DrawCount, Seed
from bayesify.studio.training import Lesson, Square

KEPT = 8
AT_ONCE = 2


class Classroom:
    """Trainings in progress, and the last few methods trained, which can be asked for draws."""

    def __init__(self) -> None:
        self._trained: OrderedDict[str, tuple[Method, Square]] = OrderedDict()
        self._seats = threading.BoundedSemaphore(AT_ONCE)

    def begin(self) -> None:
        if not self._seats.acquire(blocking=False):
            problem = f"{AT_ONCE} networks are training already: wait for one to finish"
            raise HTTPException(429, problem, headers={"Retry-After": "2"})

    def end(self) -> None:
        self._seats.release()

    def keep(self, method: Method, lesson: Lesson) -> str:
        name = uuid.uuid4().hex
        self._trained[name] = method, Square.of(lesson)
        while len(self._trained) > KEPT:
            self._trained.popitem(last=False)
        return name

    def get(self, name: str) -> tuple[Method, Square]:
        if name not in self._trained:
            raise HTTPException(404, "this network is no longer kept: train it again")
        return self._trained[name]


def router() -> APIRouter:
    """The page's routes."""
    routes, classroom = APIRouter(), Classroom()

    @routes.get("/understand/options")
    def options() -> dict[str, Any]:
        return training.options()

    @routes.get("/understand/points")
    def points(
        data: str = "moons",
        n: Annotated[int, Query(ge=4, le=600)] = 80,
        noise: Annotated[float, Query(ge=0, le=2)] = 0.15,
        seed: Seed = 0,
    ) -> dict[str, Any]:
        try:
            return {"points": training.plane(data, n, noise, seed)}
        except ValueError as problem:
            raise HTTPException(422, str(problem)) from None

    @routes.post("/understand/train")
    async def train(lesson: Lesson) -> StreamingResponse:
        try:
            training.tensors(lesson)
            training.build(lesson)
        except (ValueError, TypeError) as problem:
            raise HTTPException(422, str(problem)) from None
        classroom.begin()
        # A proxy must not gather events up.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(lesson, classroom), media_type="text/event-stream", headers=headers)

    @routes.get("/understand/draws")
    def draws(trained: str, draws: DrawCount = 6, seed: Seed = 0) -> dict[str, Any]:
        method, square = classroom.get(trained)
        found = training.surfaces(method, square, draws, seed)
        return {"side": training.LATTICE, "held": method.held, "draws": found}

    return routes


async def _events(lesson: Lesson, classroom: Classroom) -> AsyncIterator[str]:
    loop, queue, stop = (
        asyncio.get_running_loop(),
        asyncio.Queue[tuple[str, dict[str, Any]] | None](),
        threading.Event(),
    )

    def send(event: tuple[str, dict[str, Any]] | None) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, event)

    def work() -> None:
        try:
            method = training.train(lesson, lambda shown: send(("frame", shown)), stop.is_set)
            send(("done", {"trained": classroom.keep(method, lesson)}))
        except training.Stopped:
            pass
        except (ValueError, TypeError, RuntimeError, TrainingError) as problem:
            send(("problem", {"detail": str(problem).splitlines()[0]}))
        finally:
            classroom.end()
            send(None)

    thread = threading.Thread(target=work, name="studio-training", daemon=True)
    thread.start()
    try:
        while (event := await queue.get()) is not None:
            kind, content = event
            yield f"event: {kind}\ndata: {json.dumps(content)}\n\n"
    finally:
        # Also when the browser has gone: the thread ends at its next step.
        stop.set()


def python(lesson: Lesson) -> str:
    """The lesson in Python, with its points."""
    kind = type(training.build(lesson)).__name__
    prior = None if lesson.prior in {"", "none"} else lesson.prior
    given = {"prior": prior, "start": "fresh", "seed": lesson.seed, **training.own_settings(lesson.method)}
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    fitting = ", ".join(f"{name}={value!r}" for name, value in training.fit_settings(lesson).items())
    return f"""import numpy as np

import bayesify as bf

points = np.array({[list(point) for point in lesson.points]})
x, y = points[:, :2], points[:, 2].astype(int)
network = bf.networks.mlp(2, 2, units={lesson.units}, layers={lesson.layers}, activation={lesson.activation!r})
bnn = bf.{kind}(network, bf.likelihoods.Categorical(classes=2), {arguments})
bnn.fit((x, y), {fitting})
side = np.linspace(x.min() - 1, x.max() + 1, {training.LATTICE})
lattice = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
p = bnn.predict(lattice, draws={training.DRAWS}, seed=0)
ask = lattice[int(p.epistemic.argmax())]
print("train accuracy", float((bnn.predict(x).labels.numpy() == y).mean()), "ask next at", ask)
"""
