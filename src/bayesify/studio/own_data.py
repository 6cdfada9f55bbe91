"""A visitor's own table or run folder, dropped on the studio: trained or loaded, then shown like every other run.

Nothing that is dropped names a file of the server: a table is written to a folder that the server makes and removes,
only known files of a run folder are taken, and the data that its configuration names is not opened.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import math
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field

from bayesify.data.column_kinds import MOST_CATEGORIES
from bayesify.decisions import saved_check
from bayesify.errors import RunError, TrainingError
from bayesify.evaluation import evaluate
from bayesify.methods import CARDS, Method
from bayesify.runs import HISTORY, UNKNOWN, is_history, read_config
from bayesify.serving.bodies import client_has_left
from bayesify.studio.models import API, WRONG, DrawCount, ModelStore, Seed, describe, explained
from bayesify.studio.routes import StudioRoute
from bayesify.training.interrupts import stop_when
from bayesify.training.warnings import without_warnings
from bayesify.workflows.load import load_run
from bayesify.workflows.prepare import open_for
from bayesify.workflows.recipe import AUTO, Recipe
from bayesify.workflows.run_data import examples_of, preparation_of
from bayesify.workflows.train import InterruptedTrainingError, train, write_metrics
from bayesify.workflows.unknown_check import fit_check, training_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from bayesify.data import Preparation
    from bayesify.decisions import UnknownInputs
    from bayesify.predictive import Predictive
    from bayesify.studio.understand_page import Trainings

MOST = 8
SECONDS = 20.0
# A table for longer training, or for a sampler that passes over all rows in each step, is for the command line.
LONGEST = 120.0
SAMPLED_ROWS = 5000
SHOWN = 12
SCORING_DRAWS = 50
# Numbers that a dropped table may become (64 MB), and those of an input of a dropped run.
MOST_NUMBERS = 16_000_000
LARGEST = 1 << 22
_REFUSED = (*WRONG, TrainingError, OSError, binascii.Error)
RUN_FILES = ("config.json", "model.safetensors", "history.jsonl", "metrics.json", UNKNOWN)


class OwnTable(BaseModel):
    """A table as text, its target column, and the method to train on it."""

    name: str = Field(max_length=200)
    text: str = Field(min_length=1, max_length=6_000_000)
    target: str | None = Field(default=None, max_length=200)
    method: str = Field(default=AUTO, max_length=40)
    withhold: str | None = Field(default=None, max_length=200)


class OwnFolder(BaseModel):
    """The files of a run folder, base64 each, by name."""

    name: str = Field(max_length=200)
    files: dict[str, str] = Field(max_length=20)


class OwnModel:
    """A visitor's run in memory, with the same attributes as one of the server's."""

    def __init__(self, name: str, method: Method, folder: Path, table: str | None = None) -> None:
        self.name, self.method, self.table = name, method, table
        self.config: dict[str, Any] = read_config(folder)
        self.preparation: Preparation = preparation_of(self.config, folder)
        names = method.notes.get("class_names")
        self.class_names = None if names is None else tuple(map(str, names))
        self.check = saved_check(method)
        self._lock = threading.Lock()

    async def known(self, x: Tensor) -> NDArray[np.bool_] | None:
        """Which prepared inputs are like the training data; None where the run has no check for unknown inputs."""
        return None if self.check is None else await asyncio.to_thread(self._known, self.check, x)

    def _known(self, check: UnknownInputs, x: Tensor) -> NDArray[np.bool_]:
        with explained(self.name, self._lock):
            return check.accept(x).cpu().numpy()

    async def predict(self, x: Tensor, *, draws: int, seed: int) -> Predictive:
        """The predictive of prepared inputs."""
        return await asyncio.to_thread(self._predict, x, draws, seed)

    def _predict(self, x: Tensor, draws: int, seed: int) -> Predictive:
        with explained(self.name, self._lock):
            return self.method.predict(x, draws=draws, seed=seed)


class OwnRuns:
    """The runs that visitors have brought, in a folder that is removed with the server.

    Args:
        store: where they are shown.

    """

    def __init__(self, store: ModelStore) -> None:
        self.store = store
        self._folder: Path | None = None
        self._count = self._last = 0
        self._lock = threading.Lock()

    def train(self, table: OwnTable) -> str:
        """Train on a table; the name of the new run."""
        if table.method != AUTO and table.method not in CARDS:
            raise HTTPException(422, f"method must be {AUTO} or one of {', '.join(CARDS)}, got {table.method!r}")
        lines = table.text.count("\n")
        if table.method in CARDS and not CARDS[table.method].optimised and lines > SAMPLED_ROWS:
            most = f"{table.method} passes over all rows in each step: here a table may have {SAMPLED_ROWS:,}"
            raise HTTPException(422, f"{most}, got about {lines:,}; train it with bayesify train")
        with self._place(table.name) as (name, folder):
            data = folder / f"{name}.csv"
            data.write_text(table.text, encoding="utf-8")
            recipe = Recipe(
                data=str(data),
                target=table.target or None,
                method=table.method,
                withhold=(table.withhold,) if table.withhold else (),
                time=SECONDS if table.method == AUTO else None,
            )
            _check_size(recipe, len(table.text))
            with without_warnings():
                # The compiler takes long, and nothing can stop it.
                trained = train(recipe, folder / "run", progress=False, compiled=False)
            # A few rows are too few to tell what is unlike them.
            with contextlib.suppress(ValueError):
                fit_check(trained.method, folder / "run", training_inputs(folder / "run"))
            _score(trained.method, folder / "run")
            self.store.add(OwnModel(name, trained.method, folder / "run", str(data)))
            return name

    def load(self, dropped: OwnFolder) -> str:
        """Load a run folder; the name of the new run."""
        missing = [name for name in RUN_FILES[:2] if name not in dropped.files]
        if missing:
            raise HTTPException(422, f"this is no run folder: it has no {' and no '.join(missing)}")
        with self._place(dropped.name) as (name, folder):
            for file in RUN_FILES:
                if file in dropped.files:
                    (folder / file).write_bytes(base64.b64decode(dropped.files[file], validate=True))
            # Once and for all: every page that shows the run reads its history, and would remark on it in the log.
            if (folder / HISTORY).exists() and not is_history((folder / HISTORY).read_bytes()):
                raise RunError(f"{HISTORY} is damaged")
            if "posterior" in json.dumps(read_config(folder).get("prior")).lower():
                # Such a prior is read from another folder.
                raise RunError("a run whose prior is another run's posterior cannot be dropped: serve it by its path")
            with without_warnings():
                model = OwnModel(name, load_run(folder), folder)
            _try(model)
            self.store.add(model)
            return name

    def remove(self) -> None:
        """Delete everything: the server ends."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _place(self, given: str) -> Iterator[tuple[str, Path]]:
        """A new name and an empty folder; what goes wrong is said in one line without the folder's path."""
        with self._lock:
            if self._count >= MOST:
                raise HTTPException(429, f"{MOST} runs were brought already: restart the server to bring others")
            self._count += 1
            self._last += 1
            number = self._last
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="bayesify-studio-"))
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(given).stem).strip("-")[:40] or "yours"
        name = stem if stem not in self.store.names() else f"{stem}-{number}"
        folder = self._folder / str(number)
        folder.mkdir()
        try:
            yield name, folder
        except BaseException as wrong:
            shutil.rmtree(folder, ignore_errors=True)
            with self._lock:
                self._count -= 1
            if not isinstance(wrong, _REFUSED):
                raise
            words = next(iter(str(wrong).strip().splitlines()), "").replace(f"{folder}/", "").replace(str(folder), name)
            raise HTTPException(422, words or f"{given[:60]} cannot be used: {type(wrong).__name__}") from None


def _score(method: Method, run: Path) -> None:
    """Write the scores on the rows that training set aside, for the table of runs; without such rows there are none."""
    with contextlib.suppress(RunError):
        test = examples_of(read_config(run), run)
        write_metrics(run, evaluate(method, (test.x, test.y), draws=SCORING_DRAWS).to_dict())


def _check_size(recipe: Recipe, characters: int) -> None:
    """Refuse a table that becomes many numbers: a column of categories becomes one input for each of up to 64."""
    if characters * MOST_CATEGORIES // 2 <= MOST_NUMBERS:
        return
    raw = open_for(recipe)
    rows, width = len(raw.x_train) + len(raw.x_test), sum(column.width for column in raw.columns)
    if rows * width > MOST_NUMBERS:
        most = f"{rows:,} rows with {width:,} inputs each are more than {MOST_NUMBERS:,} numbers, the most here"
        raise RunError(f"{most}: train it with bayesify train")


def _try(model: OwnModel) -> None:
    """Use a dropped run once: a configuration may load and still fit neither its network nor its likelihood."""
    shape = model.preparation.shape
    if math.prod(shape) > LARGEST:
        raise RunError(f"an input of shape {list(shape)} is too large here: at most {LARGEST:,} numbers")
    x = torch.zeros(2, *shape)
    _rows(model.method.predict(x, draws=2, seed=0), None)
    if model.check is not None:
        model.check.accept(x)


def router(own: OwnRuns, trainings: Trainings) -> APIRouter:
    """The routes for dropped tables and folders."""
    routes = APIRouter(prefix=API, route_class=StudioRoute)

    @routes.post("/own/table")
    def table(given: OwnTable) -> dict[str, Any]:
        trainings.begin()
        until = time.monotonic() + LONGEST
        try:
            # A server that ends does not wait for it, and nobody does who has left.
            with stop_when(lambda: trainings.closed.is_set() or client_has_left() or time.monotonic() > until):
                return describe(own.store.get(own.train(given)))
        except (KeyboardInterrupt, InterruptedTrainingError):
            if time.monotonic() > until:
                message = f"training takes longer than {LONGEST:g} s, the most here: train it with bayesify train"
                raise HTTPException(422, message) from None
            raise HTTPException(503, "the server is shutting down, and training ended with it") from None
        finally:
            trainings.end()

    @routes.post("/own/run")
    def run(given: OwnFolder) -> dict[str, Any]:
        return describe(own.store.get(own.load(given)))

    @routes.get("/own/answers")
    def answers(model: str, draws: DrawCount = 50, seed: Seed = 0) -> dict[str, Any]:
        return _answers(own.store, model, draws, seed)

    return routes


def _answers(store: ModelStore, name: str, draws: int, seed: int) -> dict[str, Any]:
    """The least sure and the surest predictions of a run for its test examples, and those for unknown ones.

    A run with a check for unknown inputs also has the test examples that are unlike its training data.
    """
    examples = store.examples(name)
    predictive = store.predict(name, examples.x, draws, seed)
    unknown = None
    if examples.unknown is not None and len(examples.unknown):
        unknown = _rows(store.predict(name, examples.unknown, draws, seed), None)[:SHOWN]
    rows = _rows(predictive, examples.y)
    known = store.known(name, examples.x)
    unlike = None if known is None else [row for row in rows if not known[row["row"]]]
    return {
        "model": name,
        "what": examples.what,
        "total": len(rows),
        "unsure": rows[:SHOWN],
        "sure": rows[::-1][:SHOWN],
        "unknown": unknown,
        "unknown_what": examples.unknown_what,
        "unlike": None if unlike is None else unlike[:SHOWN],
        "unlike_total": None if unlike is None else len(unlike),
    }


def _rows(predictive: Predictive, truth: Tensor | None) -> list[dict[str, Any]]:
    """One entry for each example, the least sure first."""
    if predictive.kind == "classification":
        names = list(predictive.class_names or map(str, range(predictive.probs.shape[-1])))
        parts = (predictive.confidence, predictive.aleatoric, predictive.epistemic)
        rows = [
            {
                "row": row,
                "answer": names[label],
                "confidence": sure,
                "aleatoric": data,
                "epistemic": weights,
                "truth": None if truth is None else names[int(truth[row])],
            }
            for row, (label, sure, data, weights) in enumerate(
                zip(predictive.labels.tolist(), *(part.double().tolist() for part in parts), strict=True)
            )
        ]
        return sorted(rows, key=lambda row: row["confidence"])
    lower, upper = (end.double().reshape(-1).tolist() for end in predictive.interval(0.95))
    means = predictive.mean.double().reshape(-1).tolist()
    truths = [None] * len(means) if truth is None else truth.double().reshape(-1).tolist()
    rows = [
        {"row": row, "answer": mean, "lower": low, "upper": high, "truth": true}
        for row, (mean, low, high, true) in enumerate(zip(means, lower, upper, truths, strict=True))
    ]
    return sorted(rows, key=lambda row: row["lower"] - row["upper"])
