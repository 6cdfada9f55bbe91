"""Requests that arrive together are evaluated together: one worker thread, one batch at a time.

Requests share a batch when they ask the same model for the same draws of the same seed. The first of them waits a few
milliseconds for company; while the worker is busy the next batch gathers by itself. A large request is cut into pieces
that queue up one after the other, the smaller the more draws it asks for, so that small ones pass between them,
whichever model they ask.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify.serving.limits import Limits
from bayesify.serving.predictor import Answered, Predictor, join
from bayesify.serving.refusals import later

Key = tuple[int, int, int]


class Batcher:
    """The queue in front of the worker thread.

    Args:
        worker: a single thread, where all of torch happens.
        limits: of the queue and of a batch.
        observe: told the number of inputs of every batch.

    """

    def __init__(self, worker: Executor, limits: Limits, observe: Callable[[int], None] = lambda _: None) -> None:
        self.limits = limits
        self.waiting = 0
        self._worker = worker
        self._observe = observe
        self._groups: OrderedDict[Key, list[_Piece]] = OrderedDict()
        self._arrived = asyncio.Event()
        self._finished = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def ask(self, predictor: Predictor, x: Tensor, draws: int, seed: int, *, outputs: bool = False) -> Answered:
        """Answers to prepared inputs `[n, ...]`; raw outputs are empty unless asked for."""
        if self._stopping:
            raise later(503, "the server is shutting down: ask again when it is back", 5)
        if self.waiting >= self.limits.queue:
            raise later(429, f"{self.waiting} requests are waiting already: ask again in a moment")
        self.waiting += 1
        try:
            parts, room = [], self.limits.room(predictor.draws(draws))
            for start in range(0, len(x), room):
                part = await self._enqueue(predictor, x[start : start + room], draws, seed)
                parts.append(part if outputs else Answered(part.outputs[:, :0], part.table))
        finally:
            self.waiting -= 1
            self._finished.set()
        return parts[0] if len(parts) == 1 else join(parts)

    async def stop(self) -> None:
        """Finish what was accepted, then end."""
        self._stopping = True
        while self.waiting:
            self._finished.clear()
            await self._finished.wait()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _enqueue(self, predictor: Predictor, x: Tensor, draws: int, seed: int) -> asyncio.Future[Answered]:
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._work())
        piece = _Piece(predictor, x, loop.create_future(), loop.time())
        # The number of draws that will be made: two requests for more than a method holds ask for the same.
        key = (id(predictor), predictor.draws(draws), seed)
        self._groups.setdefault(key, []).append(piece)
        self._arrived.set()
        return piece.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._groups:
                self._arrived.clear()
                await self._arrived.wait()
            key, pieces = next(iter(self._groups.items()))
            spare = pieces[0].arrived + self.limits.window - loop.time()
            if spare > 0 and sum(len(piece.x) for piece in pieces) < self.limits.room(key[1]):
                await asyncio.sleep(spare)
            batch = self._take(key)
            if batch:
                await self._answer(batch, key)

    def _take(self, key: Key) -> list[_Piece]:
        """As many of the oldest pieces as fit; what is left goes behind the other groups."""
        pieces = [piece for piece in self._groups.pop(key) if not piece.answer.done()]
        batch, room = [], self.limits.room(key[1])
        while pieces and len(pieces[0].x) <= room:
            room -= len(pieces[0].x)
            batch.append(pieces.pop(0))
        if pieces:
            self._groups[key] = pieces
        return batch

    async def _answer(self, batch: list[_Piece], key: Key) -> None:
        _, draws, seed = key
        x = batch[0].x if len(batch) == 1 else torch.cat([piece.x for piece in batch])
        self._observe(len(x))
        loop = asyncio.get_running_loop()
        try:
            answered = await loop.run_in_executor(self._worker, batch[0].predictor.answer, x, draws, seed)
        except Exception as problem:  # noqa: BLE001 -- whoever asked must hear of it
            for piece in batch:
                _settle(piece.answer, problem)
            return
        start = 0
        for piece in batch:
            _settle(piece.answer, answered.rows(start, start + len(piece.x)))
            start += len(piece.x)


@dataclass(frozen=True)
class _Piece:
    predictor: Predictor
    x: Tensor
    answer: asyncio.Future[Answered]
    arrived: float


def _settle(answer: asyncio.Future[Any], result: Answered | Exception) -> None:
    if answer.done():
        # Its client has given up.
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
