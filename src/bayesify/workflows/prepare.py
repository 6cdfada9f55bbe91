"""From the name of a data set to prepared data: opened, classes withheld, split, labels made noisy, scaled.

The `notes` record how. They are saved in a run's `config.json` and suffice to find the same examples again: the place
of the data, its fingerprint, the rows of each split, the preparation and the names of the classes.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify.data import Column, DataError, DataSet, Preparation, label_noise, open_data, withhold
from bayesify.data.catalogue import KNOWN, canonical
from bayesify.data.databases import PREFIX, database_of, is_query
from bayesify.data.download import download
from bayesify.data.formats import TABLE_FILES, is_table, suffix_of
from bayesify.data.locations import cache, find
from bayesify.data.sources import READERS, is_known
from bayesify.data.tables import from_table
from bayesify.errors import BayesifyWarning, TrainingError, counted, nearest
from bayesify.likelihoods.text import likelihood_class
from bayesify.workflows.recipe import Recipe, read_fold

# Settings of a recipe that only tables have, under the names of `from_table`.
OF_TABLES = ("target", "ignore", "categorical", "numeric", "missing", "group_by", "order_by")


@dataclass(frozen=True)
class PreparedData:
    """Prepared examples: inputs in float32; labels in int64, or regression targets in float64 and their own units.

    Targets stay in double precision until the likelihood subtracts their mean: near ten million float32 has steps of
    one.
    """

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor] | None
    test: tuple[Tensor, Tensor]
    unknown: Tensor | None
    kind: str
    class_names: tuple[str, ...]
    target_mean: float
    target_scale: float
    preparation: Preparation
    notes: dict[str, Any]


def prepare_data(recipe: Recipe, raw: DataSet | None = None) -> PreparedData:
    """Prepare the data of a recipe for training and testing.

    Args:
        recipe: the settings.
        raw: the raw data, where it is open already.

    Returns:
        The training, validation, test and unknown examples, and the notes that a run saves.

    Raises:
        DataError: the data cannot be read, or the recipe asks for what it does not have.

    Examples:
        >>> data = prepare_data(Recipe(data="moons", validation=0.25))
        >>> len(data.train[0]), len(data.validation[0]), len(data.test[0])
        (525, 175, 300)

    """
    raw = open_for(recipe) if raw is None else raw
    digest = fingerprint(raw)
    known = withhold(raw, recipe.withhold) if recipe.withhold else raw
    split = known.hold_out(recipe.validation, recipe.split or 0) if recipe.validation else known
    if len(split.x_train) == 0:
        raise DataError(f"{raw.name} has no training examples: use it for unknown inputs, as in --ood {raw.name}")
    if recipe.network == "cnn" and raw.image is None:
        raise DataError(f"network cnn needs images, {raw.name} is a table: use mlp")
    y_train = split.y_train
    if recipe.label_noise:
        y_train = label_noise(y_train, read_pairs(recipe.label_noise, known), recipe.split or 0)
    prepared = split.prepare(recipe.normalise, flatten=recipe.network == "mlp")
    assert prepared.preparation is not None
    apply = prepared.preparation.apply
    return PreparedData(
        train=(prepared.x_train, y_train),
        validation=(prepared.x_test, split.y_test) if recipe.validation else None,
        test=(apply(known.x_test), known.y_test),
        unknown=None if known.unknown is None else apply(known.unknown),
        kind=known.kind,
        class_names=known.class_names,
        target_mean=split.target_mean,
        target_scale=split.target_scale,
        preparation=prepared.preparation,
        notes=_notes(recipe, raw, known, split if recipe.validation else None, prepared.preparation, digest),
    )


def open_for(recipe: Recipe, columns: Sequence[Column] | None = None) -> DataSet:
    """Open the raw data set of a recipe, with the options for its kind of file.

    Args:
        recipe: the settings.
        columns: the columns of a table, where they are known from training.

    Returns:
        The raw data; what was decided about a table is in its `notices`.

    """
    raw = _open(recipe, columns)
    if recipe.fold is None:
        return raw
    number, count = read_fold(recipe.fold)
    return next(islice(raw.folds(count, recipe.split or 0), number - 1, None))


def _open(recipe: Recipe, columns: Sequence[Column] | None) -> DataSet:
    """The raw data set of a recipe, before it is divided into folds."""
    kind = None if recipe.likelihood is None else likelihood_class(recipe.likelihood).kind
    options: dict[str, Any] = {"size": recipe.size}
    for name in OF_TABLES:
        value = getattr(recipe, name)
        options[name] = None if value in (None, ()) else value
    if recipe.header is not None:
        options["header"] = recipe.header == "yes"
    path = Path(recipe.data).expanduser()
    _check_options(recipe, path)
    if recipe.test is not None:
        options["test"] = read_test(recipe.test)
    with warnings.catch_warnings():
        # Commands show the notices themselves.
        warnings.simplefilter("ignore", BayesifyWarning)
        if is_known(recipe.data):
            fetch(recipe.data)
            return open_data(recipe.data, split=recipe.split, **options)
        if is_table(recipe.data):
            if not is_query(recipe.data) and not path.exists():
                raise DataError(f"{path}: there is no such file")
            given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
            given |= {"seed": recipe.split or 0, "kind": kind, "columns": columns or None}
            if recipe.test is not None:
                given["test"] = options["test"]
            return from_table(_place(recipe.data), **given)
        if path.is_dir():
            return open_data(path, seed=recipe.split, **options)
        if suffix_of(path) in READERS:
            return open_data(path, seed=recipe.split, kind=kind, **options)
        return open_data(recipe.data)


def read_test(text: str) -> float | str | None:
    """The test part that a text names: None for `none`, a share, a number, or the path of a file."""
    if text.lower() == "none":
        return None
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def fetch(name: str) -> bool:
    """Download a known data set if it is missing.

    Args:
        name: of the data set.

    Returns:
        Whether anything was downloaded.

    Raises:
        TrainingError: the download failed.

    """
    known = KNOWN[canonical(name)]
    if not known.folders or find(known) is not None:
        return False
    try:
        download(known, cache())
    except DataError as problem:
        # The request was valid but the download failed, which is another exit code than a wrong name.
        raise TrainingError(str(problem)) from problem
    return True


def fingerprint(raw: DataSet) -> str:
    """A short digest of all raw examples, to notice a file that has changed."""
    digest = hashlib.sha256()
    for tensor in (raw.x_train, raw.y_train, raw.x_test, raw.y_test):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def describe_table(notes: dict[str, Any]) -> str | None:
    """The target and the columns that were read from a table, from its notes; None for images and known data sets."""
    names = [column["name"] for column in notes["preparation"]["columns"]]
    if not notes["target_name"] or not names:
        return None
    classes = notes["class_names"]
    kind = f"{len(classes)} classes" if classes else "a number"
    count = notes["examples"]["test"]
    tested = f"{counted(count, 'row')} set aside for testing" if count else "all rows are for training"
    return (
        f"the target is {notes['target_name']} ({kind}), from {counted(len(names), 'column')}: "
        f"{', '.join(names[:8])}"
        f"{', ...' if len(names) > 8 else ''}; {tested}"
    )


def read_pairs(text: str, dataset: DataSet) -> dict[tuple[int, int], float]:
    """Parse label noise: pairs of classes and the probability that their labels are swapped.

    Args:
        text: as `1,7=0.3` or `1,7=0.3;cat,dog=0.1`.
        dataset: which has the classes.

    Returns:
        Probabilities by pairs of class numbers.

    Raises:
        ValueError: the text has another form, or names an unknown class.

    """
    pairs = {}
    for item in filter(None, (item.strip() for item in text.split(";"))):
        classes, equals, chance = item.rpartition("=")
        names = [name.strip() for name in classes.split(",")]
        try:
            probability = float(chance)
        except ValueError:
            equals = ""
        if not equals or len(names) != 2:
            raise ValueError(f"label noise must read CLASS,CLASS=CHANCE, as in 1,7=0.3, got {item!r}")
        for name in names:
            if name not in dataset.class_names:
                raise ValueError(f"unknown class {name!r} in label noise{nearest(name, dataset.class_names)}")
        first, second = (dataset.class_names.index(name) for name in names)
        pairs[first, second] = probability
    return pairs


def _check_options(recipe: Recipe, path: Path) -> None:
    """Refuse options that belong to another kind of data."""
    suffix = suffix_of(path)
    if is_known(recipe.data):
        kind = "a known data set"
    elif path.is_dir():
        kind = "a folder"
    elif is_query(recipe.data) or suffix in READERS:
        kind = "a table" if is_table(recipe.data) else "a file of arrays"
    else:
        return
    table = f"a {' or '.join(TABLE_FILES)} table"
    for name, wanted, description in (
        *((name, "a table", table) for name in (*OF_TABLES, "header")),
        ("size", "a folder", "a folder of images"),
    ):
        if getattr(recipe, name) not in (None, ()) and kind != wanted:
            raise DataError(f"{name} is for {description}, but {recipe.data} is {kind}: leave {name} out")
    if recipe.test is not None and kind != "a table" and not isinstance(read_test(recipe.test), int | float):
        raise DataError(f"test must be a share or a number for {kind}, got {recipe.test!r}")


def _place(data: str) -> Path | str:
    """A table as the reader takes it, the place of its file in full."""
    if not is_query(data):
        return Path(data).expanduser()
    path, query = database_of(data)
    return f"{PREFIX}{path.resolve()}?query={query}"


def _notes(
    recipe: Recipe, raw: DataSet, known: DataSet, split: DataSet | None, preparation: Preparation, digest: str
) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: getattr(recipe, name) for name in (*OF_TABLES, "header", "test", "fold", "size", "split")
    }
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    if isinstance(recipe.test, str) and isinstance(read_test(recipe.test), str):
        options["test"] = str(Path(recipe.test).expanduser().resolve())
    train = split or known
    return {
        "name": raw.name,
        "path": None if is_known(recipe.data) else str(_resolved(recipe.data)),
        "options": {name: value for name, value in options.items() if value not in (None, [])},
        "kind": raw.kind,
        "fingerprint": digest,
        "licence": raw.licence,
        "target_name": raw.target_name,
        "class_names": list(known.class_names) or None,
        "withhold": list(recipe.withhold) or None,
        "withheld": list(known.withheld),
        "label_noise": recipe.label_noise,
        **({"class_weights": recipe.class_weights} if recipe.class_weights else {}),
        **({"notices": list(raw.notices)} if raw.notices else {}),
        "validation": recipe.validation,
        "examples": {
            "train": len(train.x_train),
            "validation": 0 if split is None else len(split.x_test),
            "test": len(known.x_test),
            "unknown": 0 if known.unknown is None else len(known.unknown),
        },
        "preparation": preparation.to_dict(),
        "factory": recipe.network if ":" in recipe.network else None,
        "split_seed": raw.split_seed,
        "test_rows": _rows(raw.test_rows),
        "validation_rows": None if split is None else _rows(split.test_rows),
    }


def _resolved(data: str) -> Path | str:
    return _place(data) if is_query(data) else Path(data).expanduser().resolve()


def _rows(rows: Tensor | None) -> list[int] | None:
    return None if rows is None else [int(row) for row in rows.to(torch.int64).tolist()]
