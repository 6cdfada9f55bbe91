"""Batching: requests that arrive together are evaluated together, in one worker thread, one batch at a time.

Requests share a batch when they have the same model, number of draws and seed. The first of them waits a few
milliseconds for others; while the worker is busy, the next batch gathers. A large request is cut into pieces that queue
one after the other, so that small requests to any model pass between them. More draws make smaller pieces.
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

from bayesify.methods.checks import InputError
from bayesify.serving.errors import retry_later
from bayesify.serving.limits import Limits
from bayesify.serving.predictor import Prediction, Predictor, concatenate

Key = tuple[int, int, int]


class Batcher:
    """The queue in front of the worker thread.

    Args:
        worker: a single thread, the only one that runs torch.
        limits: of the queue and of a batch.
        observe: called with the number of inputs of every batch.

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

    async def predict(
        self, predictor: Predictor, x: Tensor, draws: int, seed: int, *, outputs: bool = False
    ) -> Prediction:
        """The prediction for prepared inputs `[n, ...]`; without `outputs` its raw outputs are empty."""
        if self._stopping:
            raise retry_later(503, "the server is shutting down: try again when it is back", 5)
        if self.waiting >= self.limits.queue:
            raise retry_later(429, f"{self.waiting} requests are waiting already: try again in a moment")
        self.waiting += 1
        try:
            # More draws than a method holds come to the same.
            draws = predictor.draws(draws)
            room = self.limits.room(draws)
            if len(x) <= room:
                return await self._enqueue(predictor, x, draws, seed, outputs=outputs)
            parts = [
                await self._enqueue(predictor, x[start : start + room], draws, seed, outputs=outputs)
                for start in range(0, len(x), room)
            ]
        finally:
            self.waiting -= 1
            self._finished.set()
        return concatenate(parts)

    async def stop(self) -> None:
        """Finish the accepted requests, then end."""
        self._stopping = True
        while self.waiting:
            self._finished.clear()
            await self._finished.wait()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _enqueue(
        self, predictor: Predictor, x: Tensor, draws: int, seed: int, *, outputs: bool
    ) -> asyncio.Future[Prediction]:
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._work())
        piece = _Piece(predictor, x, len(x), outputs, loop.create_future(), loop.time())
        key = (id(predictor), draws, seed)
        self._groups.setdefault(key, []).append(piece)
        self._arrived.set()
        return piece.prediction

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._groups:
                self._arrived.clear()
                await self._arrived.wait()
            key, pieces = next(iter(self._groups.items()))
            spare = pieces[0].arrived + self.limits.window - loop.time()
            if spare > 0 and sum(piece.size for piece in pieces) < self.limits.room(key[1]):
                await asyncio.sleep(spare)
            batch = self._take(key)
            if batch:
                await self._evaluate_batch(batch, key)

    def _take(self, key: Key) -> list[_Piece]:
        """As many of the oldest pieces as fit; what is left goes behind the other groups."""
        pieces = [piece for piece in self._groups.pop(key) if not piece.prediction.done()]
        batch, room = [], self.limits.room(key[1])
        while pieces and pieces[0].size <= room:
            room -= pieces[0].size
            batch.append(pieces.pop(0))
        if pieces:
            self._groups[key] = pieces
        return batch

    async def _evaluate_batch(self, batch: list[_Piece], key: Key) -> None:
        _, draws, seed = key
        x = batch[0].x if len(batch) == 1 else torch.cat([piece.x for piece in batch])
        self._observe(len(x))
        loop = asyncio.get_running_loop()
        try:
            prediction = await loop.run_in_executor(self._worker, batch[0].predictor.predict, x, draws, seed)
        except InputError as problem:
            if len(batch) == 1:
                _settle(batch[0].prediction, problem)
            for piece in batch if len(batch) > 1 else []:  # the inputs of one request are no fault of another
                await self._evaluate_batch([piece], key)
            return
        except Exception as problem:  # noqa: BLE001 -- every request of the batch gets it
            for piece in batch:
                _settle(piece.prediction, problem)
            return
        start, none = 0, prediction.outputs[:, :0]
        for piece in batch:
            stop = start + piece.size
            # Almost no caller wants the raw outputs, and a view of them costs as much as the rest.
            _settle(
                piece.prediction,
                prediction.rows(start, stop) if piece.outputs else Prediction(none, prediction.table_rows(start, stop)),
            )
            start = stop


@dataclass(frozen=True)
class _Piece:
    predictor: Predictor
    x: Tensor
    size: int
    outputs: bool
    prediction: asyncio.Future[Prediction]
    arrived: float


def _settle(future: asyncio.Future[Any], result: Prediction | Exception) -> None:
    if future.done():
        # The client has given up.
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
