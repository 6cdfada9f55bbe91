"""Runs in memory, by the names of their folders.

registry = Registry(["runs/plain", "runs/variational"])
await registry.start()                                  # loads in the worker thread
model = registry.get("variational")
predictive = await model.predict(model.preparation.apply(raw), draws=100, seed=0)
await registry.stop()                                   # finishes the accepted requests
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from torch import Tensor

from bayesify import runs
from bayesify.data import Preparation
from bayesify.decisions import saved_check
from bayesify.errors import RunError, at_least, nearest
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.serving.batching import Batcher
from bayesify.serving.errors import retry_later
from bayesify.serving.input_arrays import SMALL_BODY
from bayesify.serving.limits import Limits
from bayesify.serving.metrics import Metrics
from bayesify.serving.predictions import Table
from bayesify.serving.predictor import Predictor
from bayesify.serving.promises import Promises
from bayesify.serving.weight_cache import WeightCache
from bayesify.workflows import load, run_data
from bayesify.workflows.python_runs import as_taken, raw_shape, taken_by
from bayesify.workflows.recipe import DRAWS

Args = ParamSpec("Args")
Result = TypeVar("Result")


class LoadedModel:
    """A run in memory.

    `method`, `config` (its config.json), `preparation`, `class_names` (None for numbers), `kind`, and `example`: the
    table of one input, which shows the names, types and shapes of everything that is reported.
    """

    def __init__(
        self, name: str, config: dict[str, Any], preparation: Preparation, predictor: Predictor, registry: Registry
    ) -> None:
        self.name = name
        self.config = config
        self.predictor = predictor
        self.method: Method = predictor.method
        self.preparation = taken_by(self.method, preparation)
        self.kind = self.method.likelihood.kind
        names = self.method.notes.get("class_names")
        self.class_names = None if names is None else tuple(map(str, names))
        # As many as predictions really have: an ensemble has its members.
        self.draws = predictor.draws(registry.draws)
        self.promises = Promises(self.method)
        self.check = saved_check(self.method)
        self._registry = registry
        blank = as_taken(self.method, torch.zeros(1, *preparation.shape))
        self.example: Table = predictor.predict(blank, self.draws, 0).table
        if self.check is not None:
            # One that does not fit the network is refused here, not in every request.
            self.check.accept(blank.to(self.method.network.device))

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one raw input: `[height, width]`, `[channels, height, width]`, `[columns]`, or the network's."""
        return self._registry.raw_shape(self.name)

    async def predict(self, x: Tensor, *, draws: int | None = None, seed: int = 0) -> Predictive:
        """The predictive of prepared inputs `[n, ...]` (`preparation.apply(raw)`), through the shared queue."""
        prediction = await self._registry.batcher.predict(self.predictor, x, draws or self.draws, seed, outputs=True)
        return self.predictor.predictive(prediction.outputs.contiguous(), seed)

    async def known(self, x: Tensor) -> NDArray[np.bool_] | None:
        """Which prepared inputs are like the training data; None where the run has no check for unknown inputs."""
        check = self.check
        return None if check is None else await self._registry.run(lambda: check.accept(x).cpu().numpy())

    async def table(self, x: Tensor, *, draws: int | None = None, seed: int = 0) -> Table:
        """What is reported about prepared inputs, as arrays by name; the same bits whatever else is in the batch."""
        return (await self._registry.batcher.predict(self.predictor, x, draws or self.draws, seed)).table


class Registry:
    """All models of a server, and the one thread in which torch runs.

    Args:
        folders: run folders, or folders of run folders.
        limits: the largest request, and how many may wait.
        draws: per prediction, unless a request says otherwise.
        network: `module:factory`, for runs whose network is the user's code.
        compiled: compile the passes of `draws` draws.
        threads: threads of torch; None leaves one core to the rest of the server.

    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        *,
        limits: Limits | None = None,
        draws: int = DRAWS,
        network: str | None = None,
        compiled: bool = False,
        threads: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.draws = at_least("draws", draws, 1)
        if draws > self.limits.draws:
            raise ValueError(f"draws must be at most the limit of {self.limits.draws}, got {draws}")
        self.metrics = Metrics()
        self.failure: Exception | None = None
        self._network = network
        self._compiled = compiled
        self._threads = threads or max(1, (os.cpu_count() or 2) - 1)
        self._cache = WeightCache(self.limits.cache)
        self._runs = _read_runs(folders)
        self._models: dict[str, LoadedModel] = {}
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        # One large body is decoded at a time, which bounds the memory that decoding takes.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reader")
        self._batcher: Batcher | None = None

    def names(self) -> list[str]:
        """The names of the models, in the order of their folders."""
        return list(self._runs)

    def folders(self) -> list[Path]:
        """Their run folders, in the same order."""
        return [run.folder for run in self._runs.values()]

    def raw_shape(self, name: str) -> tuple[int, ...]:
        """The shape of one raw input of a model, loaded or not."""
        return raw_shape(self.preparation(name))

    def preparation(self, name: str) -> Preparation:
        """How raw inputs of a model become inputs of its network."""
        return self._runs[name].preparation

    @property
    def ready(self) -> bool:
        """Whether every model is loaded."""
        return len(self._models) == len(self._runs)

    def is_ready(self, name: str) -> bool:
        """Whether this model is loaded."""
        self._check(name)
        return name in self._models

    def get(self, name: str) -> LoadedModel:
        """A model by name; a 404 error where there is none, 503 while it is loading."""
        self._check(name)
        if name not in self._models:
            raise retry_later(503, f"model {name!r} is still loading")
        return self._models[name]

    @property
    def batcher(self) -> Batcher:
        """The queue; it belongs to the event loop that first used it."""
        if self._batcher is None:
            self._batcher = Batcher(self._worker, self.limits, self.metrics.batch)
        return self._batcher

    def load(self) -> None:
        """Read every run, one after the other, in this thread."""
        torch.set_num_threads(self._threads)
        for name, run in self._runs.items():
            method = load.load_run(run.folder, self._network)
            predictor = Predictor(method, self._cache, compile_for=self.draws if self._compiled else None)
            self._models[name] = model = LoadedModel(name, run.config, run.preparation, predictor, self)
            self.metrics.watched(name, model.promises.monitor)

    async def start(self) -> None:
        """Load in the worker thread; an exception is kept in `failure`."""
        if self.ready:
            return
        try:
            await self.run(self.load)
        except Exception as problem:  # noqa: BLE001 -- the command line reports it in one line
            self.failure = problem

    async def stop(self) -> None:
        """Finish the accepted requests, then end the worker thread."""
        if self._batcher is not None:
            await self._batcher.stop()
        await asyncio.to_thread(self._worker.shutdown)
        await asyncio.to_thread(self._reader.shutdown)

    async def read(self, size: int, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
        """Call a function that decodes a body: at once for a small one, otherwise beside the event loop, in turn.

        Args:
            size: bytes of the body.
            function: what to call.
            *args: its arguments.
            **named: its named arguments.

        """
        if size <= SMALL_BODY:
            return function(*args, **named)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, lambda: function(*args, **named))

    async def run(self, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
        """Call a function in the worker thread, between two batches."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, lambda: function(*args, **named))

    def _check(self, name: str) -> None:
        if name not in self._runs:
            # Comparing names takes time that grows with their length.
            raise HTTPException(404, f"there is no model {name[:40]!r}{nearest(name[:40], self._runs)}")


@dataclass(frozen=True)
class _Run:
    """A run without its weights: enough to see at once that it cannot be served."""

    folder: Path
    config: dict[str, Any]
    preparation: Preparation


def _read_runs(folders: Sequence[str | Path]) -> dict[str, _Run]:
    """The runs by name; a second folder of the same name gets a number."""
    by_name: dict[str, _Run] = {}
    for folder in run_folders(folders):
        config = runs.read_config(folder)
        name, number = folder.resolve().name, 2
        while name in by_name:
            name = f"{folder.resolve().name}-{number}"
            number += 1
        by_name[name] = _Run(folder, config, run_data.preparation_of(config, folder))
    return by_name


def run_folders(folders: Sequence[str | Path]) -> list[Path]:
    """The run folders that are named, or are inside those that are named.

    Args:
        folders: run folders, or folders of them.

    Returns:
        Folders in order; one that is neither is among them, so that reading it says what is wrong.

    Raises:
        RunError: none is named.

    """
    if not folders:
        raise RunError("no run to serve: give a run folder")
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = [] if (folder / runs.CONFIG).exists() or not folder.is_dir() else sorted(folder.iterdir())
        found += [part for part in inside if (part / runs.CONFIG).exists()] or [folder]
    return found
