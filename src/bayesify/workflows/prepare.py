"""From the name of a data set to prepared data: opened, classes withheld, split, labels made noisy, scaled.

The `notes` record how. They are saved in a run's `config.json` and suffice to find the same examples again: the place
of the data, its fingerprint, the rows of each split, the preparation and the names of the classes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify.data import DataError, DataSet, Preparation, label_noise, open_data, withhold
from bayesify.data.catalogue import KNOWN, canonical
from bayesify.data.download import download
from bayesify.data.formats import TABLE_FILES
from bayesify.data.locations import cache, find
from bayesify.data.sources import READERS, is_known
from bayesify.errors import TrainingError, nearest
from bayesify.likelihoods.text import likelihood_class
from bayesify.workflows.recipe import Recipe


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

    Example:
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


def open_for(recipe: Recipe) -> DataSet:
    """Open the raw data set of a recipe, with the options for its kind of file."""
    kind = None if recipe.likelihood is None else likelihood_class(recipe.likelihood).kind
    options = {"target": recipe.target, "ignore": recipe.ignore or None, "size": recipe.size}
    path = Path(recipe.data).expanduser()
    _check_options(recipe, path)
    if is_known(recipe.data):
        fetch(recipe.data)
        return open_data(recipe.data, split=recipe.split, **options)
    if path.is_dir():
        return open_data(path, seed=recipe.split, **options)
    if path.suffix.lower() in READERS:
        return open_data(path, seed=recipe.split, kind=kind, **options)
    return open_data(recipe.data)


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
    return (
        f"target {notes['target_name']} ({kind}) from {len(names)} columns: {', '.join(names[:8])}"
        f"{', ...' if len(names) > 8 else ''}; {notes['examples']['test']} rows set aside for testing"
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
    suffix = path.suffix.lower()
    if is_known(recipe.data):
        kind = "a known data set"
    elif path.is_dir():
        kind = "a folder"
    elif suffix in READERS:
        kind = "a table" if suffix in TABLE_FILES else "a file of arrays"
    else:
        return
    for name, wanted, description in (
        ("target", "a table", f"a {' or '.join(TABLE_FILES)} table"),
        ("ignore", "a table", f"a {' or '.join(TABLE_FILES)} table"),
        ("size", "a folder", "a folder of images"),
    ):
        if getattr(recipe, name) not in (None, ()) and kind != wanted:
            raise DataError(f"{name} is for {description}, but {recipe.data} is {kind}: leave {name} out")


def _notes(
    recipe: Recipe, raw: DataSet, known: DataSet, split: DataSet | None, preparation: Preparation, digest: str
) -> dict[str, Any]:
    options = {"target": recipe.target, "ignore": list(recipe.ignore), "size": recipe.size, "split": recipe.split}
    train = split or known
    return {
        "name": raw.name,
        "path": None if is_known(recipe.data) else str(Path(recipe.data).expanduser().resolve()),
        "options": {name: value for name, value in options.items() if value not in (None, [])},
        "kind": raw.kind,
        "fingerprint": digest,
        "licence": raw.licence,
        "target_name": raw.target_name,
        "class_names": list(known.class_names) or None,
        "withhold": list(recipe.withhold) or None,
        "withheld": list(known.withheld),
        "label_noise": recipe.label_noise,
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


def _rows(rows: Tensor | None) -> list[int] | None:
    return None if rows is None else [int(row) for row in rows.to(torch.int64).tolist()]
