"""Runs kept in memory, told apart by the names of their folders, each ready to be asked.

registry = Registry(["runs/plain", "runs/variational"])
await registry.start()                                  # loads in the worker thread
model = registry.get("variational")
predictive = await model.predict(model.preparation.apply(raw), draws=100, seed=0)
await registry.stop()                                   # finishes what was accepted
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from bayesify import runs
from bayesify.data import Preparation
from bayesify.errors import RunError, at_least, nearest
from bayesify.methods import Method
from bayesify.predictive import Predictive
from bayesify.serving.answers import Table
from bayesify.serving.batching import Batcher
from bayesify.serving.limits import Limits
from bayesify.serving.metrics import Metrics
from bayesify.serving.predictor import Answered, Predictor
from bayesify.serving.refusals import Refusal, later
from bayesify.serving.weights import WeightCache
from bayesify.workflows import load, run_data
from bayesify.workflows.recipe import DRAWS
from bayesify.workflows.unprepared import raw_shape

Args = ParamSpec("Args")
Result = TypeVar("Result")


class LoadedModel:
    """A run in memory.

    `method`, `config` (its config.json), `preparation`, `class_names` (None for numbers), `kind`, and `example`: one
    row of everything that is said about an input, from which names, types and shapes are read.
    """

    def __init__(
        self, name: str, config: dict[str, Any], preparation: Preparation, predictor: Predictor, registry: Registry
    ) -> None:
        self.name = name
        self.config = config
        self.preparation = preparation
        self.predictor = predictor
        self.method: Method = predictor.method
        self.kind = self.method.likelihood.kind
        names = self.method.notes.get("class_names")
        self.class_names = None if names is None else tuple(map(str, names))
        self.draws = registry.draws
        self._registry = registry
        self.example: Table = predictor.answer(torch.zeros(1, *preparation.shape), self.draws, 0).table

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one raw input: `[height, width]`, `[channels, height, width]`, `[columns]`, or the network's."""
        return self._registry.raw_shape(self.name)

    async def predict(self, x: Tensor, *, draws: int | None = None, seed: int = 0) -> Predictive:
        """The predictive of prepared inputs `[n, ...]` (`preparation.apply(raw)`), through the shared queue."""
        answered = await self._registry.batcher.ask(self.predictor, x, draws or self.draws, seed, outputs=True)
        return self.predictor.predictive(answered.outputs.contiguous(), seed)

    async def answer(self, x: Tensor, *, draws: int | None = None, seed: int = 0) -> Answered:
        """What is said about prepared inputs, as arrays by name; the same bits whatever else is being asked."""
        return await self._registry.batcher.ask(self.predictor, x, draws or self.draws, seed)


class Registry:
    """All models of a server, and the one thread in which torch runs.

    Args:
        folders: run folders; a folder that holds run folders stands for them.
        limits: what one client may ask for, and how much may wait.
        draws: per answer, unless a request says otherwise.
        network: `module:factory`, for runs whose network is code of the user's.
        compiled: compile the passes of `draws` draws.
        threads: that torch may use; None leaves one core to the rest of the server.

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
        self._described = _described(folders)
        self._models: dict[str, LoadedModel] = {}
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._batcher: Batcher | None = None

    def names(self) -> list[str]:
        """The models, in the order in which they were given."""
        return list(self._described)

    def folders(self) -> list[Path]:
        """Their run folders, in the same order."""
        return [folder for folder, _, _ in self._described.values()]

    def raw_shape(self, name: str) -> tuple[int, ...]:
        """The shape of one raw input of a model, loaded or not."""
        return raw_shape(self.preparation(name))

    def preparation(self, name: str) -> Preparation:
        """How raw inputs of a model become what its network takes."""
        return self._described[name][2]

    @property
    def ready(self) -> bool:
        """Whether every model can be asked."""
        return len(self._models) == len(self._described)

    def is_ready(self, name: str) -> bool:
        """Whether this model can be asked."""
        self._check(name)
        return name in self._models

    def get(self, name: str) -> LoadedModel:
        """A model by name; 404 where there is none, 503 while it is loading."""
        self._check(name)
        if name not in self._models:
            raise later(503, f"model {name!r} is still loading")
        return self._models[name]

    @property
    def batcher(self) -> Batcher:
        """The queue; it belongs to the event loop that first asked for it."""
        if self._batcher is None:
            self._batcher = Batcher(self._worker, self.limits, self.metrics.batch)
        return self._batcher

    def load(self) -> None:
        """Read every run, one after the other, in this thread."""
        torch.set_num_threads(self._threads)
        for name, (folder, config, preparation) in self._described.items():
            method = load.load_run(folder, self._network)
            predictor = Predictor(method, self._cache, compile_for=self.draws if self._compiled else None)
            self._models[name] = LoadedModel(name, config, preparation, predictor, self)

    async def start(self) -> None:
        """Load in the worker thread; what goes wrong is kept in `failure`."""
        if self.ready:
            return
        try:
            await self.run(self.load)
        except Exception as problem:  # noqa: BLE001 -- the command line says it in one line
            self.failure = problem

    async def stop(self) -> None:
        """Finish what was accepted, then end the worker thread."""
        if self._batcher is not None:
            await self._batcher.stop()
        await asyncio.to_thread(self._worker.shutdown)

    async def run(self, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs) -> Result:
        """Call a function in the worker thread, between two batches."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, lambda: function(*args, **named))

    def _check(self, name: str) -> None:
        if name not in self._described:
            raise Refusal(404, f"there is no model {name!r}{nearest(name, self._described)}")


Described = dict[str, tuple[Path, dict[str, Any], Preparation]]


def _described(folders: Sequence[str | Path]) -> Described:
    """What can be known of runs without reading their weights: enough to say at once that one cannot be served."""
    found: Described = {}
    for folder in _runs_in(folders):
        config = runs.read_config(folder)
        described = (folder, config, run_data.preparation_of(config, folder))
        name, number = folder.resolve().name, 2
        while name in found:
            name = f"{folder.resolve().name}-{number}"
            number += 1
        found[name] = described
    return found


def _runs_in(folders: Sequence[str | Path]) -> list[Path]:
    if not folders:
        raise RunError("no run to serve: give a run folder")
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = [] if (folder / runs.CONFIG).exists() or not folder.is_dir() else sorted(folder.iterdir())
        held = [part for part in inside if (part / runs.CONFIG).exists()]
        found += held or [folder]
    return found
