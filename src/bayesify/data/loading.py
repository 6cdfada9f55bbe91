"""Known data sets by name: from `$BAYESIFY_DATA` or the user's cache, else downloaded; read once per process."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch
from torch import Tensor

from bayesify import noise as noises
from bayesify.data import locations, published_files
from bayesify.data.catalogue import KNOWN, MUSHROOM_COLUMNS, KnownDataSet, KnownRegression, canonical
from bayesify.data.columns import Column
from bayesify.data.dataset import DataSet, assemble
from bayesify.data.download import download, write_whole
from bayesify.data.errors import DAMAGE, DataError
from bayesify.data.images import layout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Stamp = tuple[Path, int, int]


def load(name: str, split: int | None = None, **options: float) -> DataSet:
    """Load a known data set; `available()` lists them. Files that are not on this machine are downloaded first.

    Args:
        name: name of the data set, such as "mnist" or "uci/concrete"; capital letters do not matter.
        split: number of a published split (UCI data sets), or the seed of a random one (digits, mushroom, moons,
            circles, gap).
        options: `test` (share or number of test examples) for digits and mushroom; `n`, `noise`, `seed` and `test` for
            moons, circles and gap; `factor` for circles; `exact=True` for cifar10, which drops the test images that the
            file test_inexact_indices.txt lists.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the name or an option is unknown, or a file is damaged or cannot be downloaded.

    Examples:
        >>> dataset = bf.data.load("digits", test=0.3)
        >>> dataset.x_train.shape, dataset.x_test.shape, dataset.classes
        (torch.Size([1258, 8, 8]), torch.Size([539, 8, 8]), 10)

    """
    known = KNOWN[canonical(name)]
    maker, allowed = _maker(known)
    if unknown := sorted(set(options) - allowed):
        takes = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no options"
        raise DataError(f"{known.name} {takes}; got {', '.join(unknown)}")
    return maker(known, split, **options)


def paths_of(known: KnownDataSet) -> list[Path]:
    """The files of a data set, downloaded first if they are not in `$BAYESIFY_DATA` or the cache."""
    paths = locations.find(known)
    if paths is None:
        download(known, locations.cache())
        paths = locations.find(known)
    if paths is None:
        raise DataError(f"{known.name} was downloaded to {locations.cache()} but is not found there")
    return paths


def _maker(known: KnownDataSet) -> tuple[Callable[..., DataSet], set[str]]:
    if isinstance(known, KnownRegression):
        return _uci, set()
    makers: dict[str, tuple[Callable[..., DataSet], set[str]]] = {
        "digits": (_digits, {"test"}),
        "moons": (_plane, {"n", "noise", "seed", "test"}),
        "circles": (_plane, {"n", "noise", "factor", "seed", "test"}),
        "gap": (_gap, {"n", "noise", "seed", "test"}),
        "cifar10": (_cifar10, {"exact"}),
        "mushroom": (_mushroom, {"test"}),
    }
    return makers.get(known.name, (_idx_images, set()))


def _digits(known: KnownDataSet, split: int | None, test: float = 0.3) -> DataSet:
    # The file that scikit-learn carries, read without importing scikit-learn, which takes longer than training.
    (package,) = find_spec("sklearn").submodule_search_locations  # type: ignore[union-attr,misc]
    rows = np.loadtxt(Path(package) / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype=np.uint8)
    x, y = torch.from_numpy(rows[:, :64].reshape(-1, 8, 8).copy()), torch.from_numpy(rows[:, 64].astype(np.int64))
    return assemble(known.name, "classification", x, y, test=test, seed=split or 0, maximum=16.0, **_about(known))


def _plane(
    known: KnownDataSet,
    split: int | None,
    n: float = 1000,
    noise: float | None = None,
    factor: float = 0.5,
    seed: float = 0,
    test: float = 0.3,
) -> DataSet:
    from sklearn.datasets import make_circles, make_moons

    noise = {"moons": 0.3, "circles": 0.1}[known.name] if noise is None else noise
    _check_points(n)
    if not noise >= 0 or not 0 <= factor < 1 or not 0 <= seed < 2**32:
        raise DataError(f"expected noise >= 0, 0 <= factor < 1 and 0 <= seed < 2^32, got {noise}, {factor} and {seed}")
    size, state = int(n), int(seed)
    if known.name == "moons":
        points, labels = make_moons(size, noise=noise, random_state=state)
    else:
        points, labels = make_circles(size, noise=noise, factor=factor, random_state=state)
    return assemble(
        known.name,
        "classification",
        torch.from_numpy(points.astype(np.float32)),
        torch.from_numpy(labels.astype(np.int64)),
        test=test,
        seed=state if split is None else split,
        columns=(Column("x1"), Column("x2")),
        **_about(known),
    )


def _gap(
    known: KnownDataSet, split: int | None, n: float = 150, noise: float = 0.1, seed: float = 0, test: float = 1 / 3
) -> DataSet:
    """`y = sin(4 x) + noise`, half of the inputs in [-1, -0.5] and half in [0.5, 1], with none between."""
    _check_points(n)
    if not noise >= 0 or not 0 <= seed < 2**32:
        raise DataError(f"expected noise >= 0 and 0 <= seed < 2^32, got {noise} and {seed}")
    size, state = int(n), int(seed)
    place, error = noises.keys(state, noises.Stream.TARGETS, draws=range(2))
    sides = torch.where(torch.arange(size) % 2 == 0, -1.0, 1.0)
    x = sides * (0.5 + 0.5 * noises.uniform(place, size))
    y = torch.sin(4 * x.double()) + noise * noises.normal(error, size).double()
    return assemble(
        known.name,
        "regression",
        x[:, None],
        y,
        test=test,
        seed=state if split is None else split,
        columns=(Column("x"),),
        target_name="y",
        **_about(known),
    )


def _check_points(n: float) -> None:
    if n != int(n) or n < 4:
        raise DataError(f"n must be a whole number of at least 4 points, got {n}")


def _idx_images(known: KnownDataSet, split: int | None) -> DataSet:
    _published_split_only(known, split)
    folder = paths_of(known)[0].parent
    parts = {}
    for part in ("train", "t10k"):
        images = locations.packed_or_unpacked(folder, f"{part}-images-idx3-ubyte.gz")
        labels = locations.packed_or_unpacked(folder, f"{part}-labels-idx1-ubyte.gz")
        if images and labels:
            parts[part] = _read_images(_stamp(images), _stamp(labels), len(known.class_names))
    x_test, y_test = parts["t10k"]
    x_train, y_train = parts.get("train", (x_test[:0], y_test[:0]))
    layout = layout_of(x_train if len(x_train) else x_test)
    return DataSet(known.name, "classification", x_train, y_train, x_test, y_test, image=layout, **_about(known))


def _cifar10(known: KnownDataSet, split: int | None, exact: float = False) -> DataSet:
    _published_split_only(known, split)
    paths = paths_of(known)
    records = cifar_records(tuple(map(_stamp, paths)))
    labels = torch.from_numpy(records[:, 0].astype(np.int64))
    images = torch.from_numpy(records)[:, 1:].view(-1, 3, 32, 32)
    first = len(records) - published_files.CIFAR_RECORDS
    x_test, y_test = images[first:], labels[first:]
    listed = paths[0].parent / "test_inexact_indices.txt"
    if exact and listed.is_file():
        keep = torch.ones(len(y_test), dtype=torch.bool)
        keep[[int(number) for number in listed.read_text().split()]] = False
        x_test, y_test = x_test[keep], y_test[keep]
    return DataSet(
        known.name,
        "classification",
        images[:first],
        labels[:first],
        x_test,
        y_test,
        image=layout_of(images[:first]),
        **_about(known),
    )


def _mushroom(known: KnownDataSet, split: int | None, test: float = 0.2) -> DataSet:
    letters = published_files.read_letters(paths_of(known)[0], len(MUSHROOM_COLUMNS) + 1, 8124)
    if set(letters[:, 0]) != {"e", "p"}:
        raise DataError(f"{known.name}: the first letter of a row must be e or p, got {sorted(set(letters[:, 0]))}")
    codes, columns = [], []
    for name, cells in zip(MUSHROOM_COLUMNS, letters[:, 1:].T, strict=True):
        # "?" is a category too: an unknown stalk root is information about the mushroom.
        categories, positions = np.unique(cells, return_inverse=True)
        codes.append(positions)
        columns.append(Column(name, tuple(map(str, categories))))
    x = torch.from_numpy(np.stack(codes, 1).astype(np.float64))
    y = torch.from_numpy((letters[:, 0] == "p").astype(np.int64))
    return assemble(
        known.name,
        "classification",
        x,
        y,
        test=test,
        seed=split or 0,
        columns=tuple(columns),
        **_about(known),
    )


def _uci(known: KnownRegression, split: int | None) -> DataSet:
    table_path, splits_path = paths_of(known)
    table = _read_table(_stamp(table_path))
    splits, count = published_files.read_splits(splits_path.parent, len(table))
    k = 0 if split is None else split
    if not 0 <= k < count:
        raise DataError(f"{known.name} has splits 0 to {count - 1}, got {split}")
    features = splits.get("index_features", np.arange(known.features))
    target = int(splits.get("index_target", np.array([known.features]))[0])
    if max(int(features.max()), target) >= table.shape[1]:
        raise DataError(f"{table_path}: expected the column {target} of its splits, got {table.shape[1]} columns")
    return assemble(
        known.name,
        "regression",
        torch.from_numpy(table[:, features]),
        torch.from_numpy(table[:, target].copy()),
        test=(torch.from_numpy(splits[f"train_{k}"]), torch.from_numpy(splits[f"test_{k}"])),
        columns=tuple(Column(f"x{number + 1}") for number in range(len(features))),
        **_about(known),
    )


class _About(TypedDict):
    class_names: tuple[str, ...]
    licence: str
    source: str


def _about(known: KnownDataSet) -> _About:
    return {"class_names": known.class_names, "licence": known.licence, "source": known.source}


def _published_split_only(known: KnownDataSet, split: int | None) -> None:
    if split not in {None, 0}:
        raise DataError(f"{known.name} has one published split (0), got {split}; use hold_out for another split")


def _stamp(path: Path) -> Stamp:
    """A path with its date and size, so that a changed file is read again."""
    about = path.stat()
    return path, about.st_mtime_ns, about.st_size


@cache
def _read_images(images: Stamp, labels: Stamp, classes: int) -> tuple[Tensor, Tensor]:
    x, y = published_files.read_images(images[0], labels[0], classes)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


@cache
def _read_table(path: Stamp) -> NDArray[np.float64]:
    return published_files.read_table(path[0])


@cache
def cifar_records(files: tuple[Stamp, ...]) -> published_files.Bytes:
    """All records of CIFAR-10, unpacked once into the user's cache and memory-mapped from there."""
    mark = hashlib.sha256(repr([(str(path.resolve()), *rest) for path, *rest in files]).encode()).hexdigest()[:16]
    unpacked = locations.cache() / "unpacked" / f"cifar10-{mark}.npy"
    with suppress(*DAMAGE):
        # Copy on write: writing into a tensor does not change the file.
        records: published_files.Bytes = np.load(unpacked, mmap_mode="c", allow_pickle=False)
        if len(records) == len(published_files.CIFAR_BATCHES) * published_files.CIFAR_RECORDS:
            return records
    records = published_files.read_cifar([path for path, *_ in files])
    # Without a writable cache, every process unpacks the files again.
    with suppress(DataError):
        write_whole(unpacked, lambda stream: np.save(stream, records))
    return records
