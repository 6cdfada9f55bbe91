"""The problems on which defaults are judged: what each is, and its raw examples for a seed.

Where the data has published splits, the seed is the number of the split. Data that is made is made by the seed. Images
and text are fixed parts of their sets, and the seed is that of the fit alone.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.data import Column, DataSet, load
from bayesify.data.dataset import assemble
from bayesify.data.images import layout_of

IMAGES, IMAGES_TESTED = 5000, 2000
WORDS = 512
SPLITS = 20
# Parts of larger sets, beside the sets themselves: `pack` writes them.
PARTS = "defaults-images.npz"


@dataclass(frozen=True)
class Problem:
    """A problem: its name, what it is, and how its examples are made.

    Args:
        name: of the problem.
        kind: `classification` or `regression`.
        about: rows and source in a few words.
        make: the raw data for a seed.
        table: whether its rows are those of a table, so that boosting is compared.
        splits: seeds that give other examples.

    """

    name: str
    kind: str
    about: str
    make: Callable[[int], DataSet]
    table: bool = True
    splits: int = SPLITS

    @property
    def images(self) -> bool:
        """Whether the inputs are images."""
        return self.name in {"digits", "mnist", "fashion-mnist"}


def made(name: str, x: Any, y: Any, *, test: float, seed: int) -> DataSet:
    """A regression from arrays, split by a seed."""
    inputs, targets = torch.tensor(np.asarray(x), dtype=torch.float32), torch.tensor(np.asarray(y), dtype=torch.float64)
    columns = tuple(Column(f"x{number}") for number in range(inputs.shape[1]))
    return assemble(name, "regression", inputs, targets, test=test, seed=seed, columns=columns)


def wheel(seed: int) -> DataSet:
    """A cut through the wheel bandit: a level target that jumps near both ends, where a tenth of the rows is."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (600, 1))
    y = np.select([x[:, 0] > 0.9, x[:, 0] < -0.9], [1.0, 0.0], 0.3) + 0.05 * generator.normal(size=600)
    return made("wheel", x, y, test=1 / 3, seed=seed)


def diabetes(seed: int) -> DataSet:
    """Scikit-learn's diabetes."""
    from sklearn.datasets import load_diabetes

    return made("diabetes", *load_diabetes(return_X_y=True), test=0.2, seed=seed)


def friedman(number: int, seed: int) -> DataSet:
    """Friedman's first or second function: 1,000 rows to train on and 1,000 to test."""
    from sklearn.datasets import make_friedman1, make_friedman2

    make, noise = (make_friedman1, 1.0) if number == 1 else (make_friedman2, 125.0)
    return made(f"friedman{number}", *make(n_samples=2000, noise=noise, random_state=seed), test=0.5, seed=seed)


@cache
def clinc() -> DataSet:
    """CLINC150 as a table: each sentence is a bag of hashed words, each of 150 intents a class."""
    from sklearn.feature_extraction.text import HashingVectorizer

    path = Path(os.environ.get("BAYESIFY_DATA", ".")) / "clinc-oos" / "data_full.json.gz"
    if not path.is_file():
        raise ValueError(f"{path} is not there: name the folder of the data in $BAYESIFY_DATA")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = json.load(file)
    names = tuple(sorted({intent for _, intent in found["train"]}))
    hashing = HashingVectorizer(n_features=WORDS, norm="l2")
    parts: dict[str, Tensor] = {}
    for part in ("train", "test"):
        sentences, intents = zip(*found[part], strict=True)
        rows = torch.tensor(hashing.transform(sentences).toarray(), dtype=torch.float32)
        labels = torch.tensor([names.index(intent) for intent in intents])
        parts |= {f"x_{part}": rows, f"y_{part}": labels}
    columns = tuple(Column(f"word {number}") for number in range(WORDS))
    return DataSet("clinc", "classification", **parts, class_names=names, columns=columns)  # type: ignore[arg-type]


@cache
def images(name: str) -> DataSet:
    """The first images of a set: 5,000 to train on and 2,000 to test."""
    packed = Path(os.environ.get("BAYESIFY_DATA", ".")) / PARTS
    if not packed.is_file():
        return _first(name)
    with np.load(packed) as found:
        x, y, x_test, y_test = (torch.from_numpy(found[f"{name}-{part}"]) for part in _FIELDS)
    names = tuple(map(str, range(10)))
    layout = layout_of(x, 255.0)
    return DataSet(name, "classification", x, y.long(), x_test, y_test.long(), class_names=names, image=layout)


def pack(folder: Path) -> Path:
    """Write the images that `images` takes into one file, for a machine without the whole sets.

    Args:
        folder: the folder of the data.

    Returns:
        The file.

    """
    arrays: dict[str, Any] = {}
    for name in ("mnist", "fashion-mnist"):
        raw = _first(name)
        of: dict[str, Tensor] = {field: getattr(raw, field) for field in _FIELDS}
        arrays |= {f"{name}-{field}": value.to(torch.uint8).numpy() for field, value in of.items()}
    np.savez_compressed(folder / PARTS, **arrays)
    return folder / PARTS


_FIELDS = ("x_train", "y_train", "x_test", "y_test")


def _first(name: str) -> DataSet:
    from dataclasses import replace

    raw = load(name)
    return replace(
        raw,
        x_train=raw.x_train[:IMAGES],
        y_train=raw.y_train[:IMAGES],
        x_test=raw.x_test[:IMAGES_TESTED],
        y_test=raw.y_test[:IMAGES_TESTED],
    )


def _uci(name: str) -> Callable[[int], DataSet]:
    return lambda seed: load(f"uci/{name}", split=seed)


def _generated(name: str) -> Callable[[int], DataSet]:
    return lambda seed: load(name, seed=seed)


_CLASSES, _NUMBERS = "classification", "regression"
PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem("moons", _CLASSES, "700 rows, 2 inputs, made", _generated("moons")),
        Problem("circles", _CLASSES, "700 rows, 2 inputs, made", _generated("circles")),
        Problem("gap", _NUMBERS, "100 rows, 1 input, made", _generated("gap")),
        Problem("wheel", _NUMBERS, "400 rows, 1 input, made", wheel),
        Problem("digits", _CLASSES, "1,258 images of 8 x 8", lambda seed: load("digits", split=seed), table=False),
        Problem("mnist", _CLASSES, "the first 5,000 images of 28 x 28", lambda _: images("mnist"), False, 1),
        Problem(
            "fashion-mnist", _CLASSES, "the first 5,000 images of 28 x 28", lambda _: images("fashion-mnist"), False, 1
        ),
        Problem("clinc", _CLASSES, "15,000 sentences, 512 hashed words, 150 classes", lambda _: clinc(), True, 1),
        Problem("boston", _NUMBERS, "455 rows, 13 inputs", _uci("boston")),
        Problem("concrete", _NUMBERS, "927 rows, 8 inputs", _uci("concrete")),
        Problem("energy", _NUMBERS, "691 rows, 8 inputs", _uci("energy")),
        Problem("naval", _NUMBERS, "10,741 rows, 16 inputs", _uci("naval")),
        Problem("power", _NUMBERS, "8,611 rows, 4 inputs", _uci("power")),
        Problem("protein", _NUMBERS, "41,157 rows, 9 inputs", _uci("protein"), splits=5),
        Problem("diabetes", _NUMBERS, "354 rows, 10 inputs", diabetes),
        Problem("friedman1", _NUMBERS, "1,000 rows, 10 inputs, made", lambda seed: friedman(1, seed)),
        Problem("friedman2", _NUMBERS, "1,000 rows, 4 inputs, made", lambda seed: friedman(2, seed)),
    )
}
# The nine tables of numbers whose intervals are counted; the first six have published scores.
TABLES = ("boston", "concrete", "energy", "naval", "power", "protein", "diabetes", "friedman1", "friedman2")
