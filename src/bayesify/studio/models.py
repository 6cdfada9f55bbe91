"""The runs that the server has loaded, as the studio needs them: with their test examples and copies for long work."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from fastapi import HTTPException, Query
from numpy.typing import NDArray
from torch import Tensor

from bayesify.data import Preparation
from bayesify.data.catalogue import KNOWN
from bayesify.decisions import UnknownInputs, saved_check
from bayesify.errors import first_line, nearest
from bayesify.methods import CARDS, Method, Variational
from bayesify.predictive import Predictive
from bayesify.studio.strokes import BOXED
from bayesify.studio.turns import Turns
from bayesify.workflows.run_data import as_images, examples_of

# What a page can show; of a larger test set an evenly spread part is shown, and the page says so.
MOST_EXAMPLES = 2000
# The prefix of each router, so that the path of a route, by which requests are counted, is complete.
API = "/studio/api"
DrawCount = Annotated[int, Query(ge=1, le=200)]
Seed = Annotated[int, Query(ge=0, lt=2**31)]


class Model(Protocol):
    """A loaded run, as the server keeps it."""

    name: str
    method: Method
    config: dict[str, Any]

    @property
    def preparation(self) -> Preparation | None: ...

    @property
    def class_names(self) -> Iterable[str] | None: ...

    @property
    def check(self) -> UnknownInputs | None: ...

    async def predict(self, x: Tensor, *, draws: int, seed: int) -> Predictive: ...

    async def known(self, x: Tensor) -> NDArray[np.bool_] | None: ...


class Models(Protocol):
    """The server's registry of runs."""

    def names(self) -> Iterable[str]: ...

    def get(self, name: str) -> Any: ...


# What a configuration that does not fit its network or its data can raise.
WRONG = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class Examples:
    """Test examples of a run: inputs, targets, images with levels 0 ... 1 where there are any, and a description."""

    def __init__(self, model: Model) -> None:
        test = examples_of(model.config, Path(model.name))
        preparation = model.preparation
        self.total = len(test.x)
        self.step = max(1, -(-self.total // MOST_EXAMPLES))
        self.x, self.y, self.what = test.x[:: self.step], test.y[:: self.step], test.what
        self.unknown = None if test.unknown is None else test.unknown[: MOST_EXAMPLES // 2]
        self.unknown_what = test.unknown_what
        self.images = None if preparation is None else as_images(self.x, preparation)
        self.unknown_images: Tensor | None = None
        if self.unknown is not None and preparation is not None:
            self.unknown_images = as_images(self.unknown, preparation)

    @property
    def part(self) -> str:
        """The Python index that picks the shown examples out of all of them."""
        return "" if self.step == 1 else f"[:: {self.step}]"


class ModelStore:
    """The runs by name, each with its test examples and a copy for the studio, made when first used."""

    def __init__(self, registry: Models, turns: Turns | None = None) -> None:
        self.registry = registry
        self._turns = turns or Turns()
        self._lock = threading.Lock()
        self._copies: dict[str, tuple[Method, threading.Lock]] = {}
        self._examples: dict[str, Examples] = {}
        self._own: dict[str, Model] = {}

    def names(self) -> list[str]:
        return [*self.registry.names(), *self._own]

    def add(self, model: Model) -> None:
        """Show one more run, which a visitor has brought.

        Args:
            model: the run; its name must be new.

        """
        self._own[model.name] = model

    def get(self, name: str) -> Model:
        names = self.names()
        if name not in names:
            raise HTTPException(404, f"no run is called {name[:40]!r}{nearest(name[:40], names)}")
        model: Model = self._own[name] if name in self._own else self.registry.get(name)
        return model

    def copy_of(self, name: str) -> tuple[Method, AbstractContextManager[None]]:
        """A copy and the turn to take for it: long work must not hold up the server, nor share state with it."""
        model = self.get(name)
        with self._lock:
            if name not in self._copies:
                self._copies[name] = copy.deepcopy(model.method).cpu(), threading.Lock()
            method, lock = self._copies[name]
        turn = self._turns.take(lock)
        return method, explained(name, turn) if name in self._own else turn

    def predict(self, name: str, x: Tensor, draws: int, seed: int) -> Predictive:
        method, lock = self.copy_of(name)
        with lock:
            return method.predict(x, draws=draws, seed=seed)

    def known(self, name: str, x: Tensor) -> list[bool] | None:
        """Which inputs are like the training data of a run; None where it has no check for that."""
        method, lock = self.copy_of(name)
        with lock:
            check = saved_check(method)
            return None if check is None else [bool(one) for one in check.accept(x).tolist()]

    def examples(self, name: str) -> Examples:
        model = self.get(name)
        if name in self._own and not _may_read(model):
            raise HTTPException(409, f"{name} was trained on data that is not here, so it has no test examples to show")
        # Runs on the same data with the same preparation share their test examples.
        key = json.dumps([model.config.get("data"), model.config.get("network")], sort_keys=True)
        with self._lock:
            if key not in self._examples:
                try:
                    self._examples[key] = Examples(model)
                except WRONG as problem:
                    why = f"the test examples of {name} cannot be read: {first_line(problem)}"
                    raise HTTPException(409, why) from None
            return self._examples[key]


@contextmanager
def explained(name: str, turn: AbstractContextManager[Any]) -> Iterator[None]:
    """Answer 409 where a visitor's run fails: its configuration may load and still describe another network."""
    try:
        with turn:
            yield
    except WRONG as problem:
        raise HTTPException(409, f"{name} cannot be used: {first_line(problem)}") from None


def describe(model: Model) -> dict[str, Any]:
    """A run for the page."""
    data = model.config.get("data") or {}
    preparation, method = model.preparation, model.method
    layout = None if preparation is None else preparation.image
    why = _not_drawable(model)
    return {
        "name": model.name,
        "method": method.name,
        "title": title_of(method),
        "kind": method.likelihood.kind,
        "data": data.get("name") or "data of yours",
        "classes": [str(name) for name in model.class_names or ()],
        "withheld": list(data.get("withheld") or []),
        "held": method.held,
        "weights": int(method.network.size),
        "prior": None if method.prior is None else model.config.get("prior"),
        "image": None if layout is None else {"height": layout.height, "width": layout.width},
        "drawable": why is None,
        "why": why,
        "colour": CARDS[method.name].colour if method.name in CARDS else None,
        "gaussian": isinstance(method, Variational) and method.family == "mean_field",
        "boxed": data.get("name") in BOXED,
        "examples": (data.get("examples") or {}).get("train"),
        "checked": model.check is not None,
        # About the width of the strokes of the training digits, as a share of the pad.
        "pen": 0.13 if layout is not None and layout.height <= 8 else 0.09,
    }


def title_of(method: Method) -> str:
    """The name of a method for readers."""
    return CARDS[method.name].title if method.name in CARDS else method.name


def folder_of(model: Model) -> str:
    """The folder of the run for `bf.load`, relative where it is below the working folder."""
    run = model.method.run
    if run is None:
        return model.name
    here = os.path.relpath(run)
    return str(run) if here.startswith("..") else here


def sheet(images: Tensor, columns: int = 40) -> bytes:
    """Images with levels 0 ... 1, `[n, h, w]` or `[n, 3, h, w]`, as one PNG of rows of `columns`."""
    import io

    from PIL import Image

    levels = (images.double() * 255).round().clamp(0, 255).to(torch.uint8)
    levels = levels.unsqueeze(-1) if levels.dim() == 3 else levels.permute(0, 2, 3, 1)
    count, height, width, channels = levels.shape
    rows = max(1, -(-count // columns))
    page = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    page[:count] = levels.numpy()
    page = page.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    whole = page.reshape(rows * height, columns * width, channels)
    out = io.BytesIO()
    Image.fromarray(whole[..., 0] if channels == 1 else whole).save(out, "PNG", optimize=False)
    return out.getvalue()


def _may_read(model: Model) -> bool:
    """Whether a visitor's run names data that the studio may open: a known data set, or the visitor's own table.

    A path inside a configuration that a visitor sent must not make the server read a file of its own.
    """
    data = model.config.get("data") or {}
    path = data.get("path")
    return (path is None and data.get("name") in KNOWN) or (path is not None and path == getattr(model, "table", None))


def _not_drawable(model: Model) -> str | None:
    preparation = model.preparation
    if model.method.likelihood.kind != "classification":
        return "it predicts numbers, not classes"
    if preparation is None:
        return "it was saved without its preparation"
    if preparation.image is None:
        columns = f"{len(preparation.columns)} columns of a table" if preparation.columns else "arrays as they are"
        return f"it takes {columns}, not images"
    return None
