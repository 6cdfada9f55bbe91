"""The data of a run, found again and prepared as the run has it: the test part, other data, and unknown inputs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesify import likelihoods
from bayesify.data import DataError, DataSet, Preparation, rows_from_csv
from bayesify.data.catalogue import canonical
from bayesify.data.formats import ARRAY_FILES, TABLE_FILES, read_arrays, read_rows
from bayesify.data.images import IMAGE_FILES
from bayesify.data.sources import is_known
from bayesify.errors import RunError, nearest
from bayesify.methods import Method
from bayesify.methods.elbo import ELBO
from bayesify.methods.with_elbo import WithELBO
from bayesify.workflows.inputs import ARRAYS, fit_array, read_inputs
from bayesify.workflows.load import recipe_of
from bayesify.workflows.prepare import fingerprint, open_for, prepare_data
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.unprepared import Untouched, untouched


@dataclass(frozen=True)
class Examples:
    """Prepared inputs and targets, with a name for what they are, and the unknown inputs that go with them."""

    x: Tensor
    y: Tensor
    what: str
    unknown: Tensor | None = None
    unknown_what: str | None = None
    training: tuple[Tensor, Tensor] | None = None


def preparation_of(config: Mapping[str, Any], run: Path) -> Preparation:
    """The preparation that travels with a run; one that was fitted in Python has none, and takes inputs as they are."""
    plain = (config.get("data") or {}).get("preparation")
    return untouched(config, run) if plain is None else Preparation.from_dict(plain)


def examples_of(config: dict[str, Any], run: Path, data: str | None = None) -> Examples:
    """The test examples of a run's own data, or examples of other data with the same classes.

    `data` may also say where the run's own data is now. Of a data set that we know the test part is used; of another
    file every example. A run that was fitted in Python knows no data of its own: `data` is an archive of arrays.
    """
    preparation = preparation_of(config, run)
    if isinstance(preparation, Untouched):
        return _from_arrays(config, run, data, preparation)
    recipe = _recipe(config, run, data)
    try:
        raw = open_for(recipe)
    except DataError as problem:
        if data is None and recipe.data == config["data"].get("path") and not Path(recipe.data).exists():
            raise DataError(f"the data of {run} is no longer at {recipe.data}: say where with --data") from None
        raise DataError(str(problem)) from None
    if fingerprint(raw) == config["data"].get("fingerprint"):
        prepared = prepare_data(recipe, raw)
        unknown = prepared.unknown if prepared.unknown is not None and len(prepared.unknown) else None
        withheld = ", ".join(config["data"].get("withheld") or [])
        what = f"the test part of {raw.name}"
        about_unknown = f"withheld: {withheld}" if unknown is not None else None
        return Examples(*prepared.test, what, unknown, about_unknown, prepared.train)
    if data is None:
        raise RunError(
            f"{recipe.data} has changed since {run} was trained, so its test part may hold training examples: "
            f"to score every example of it all the same, say --data {recipe.data}"
        )
    return _other(config, raw, recipe, preparation)


def elbo_of(method: Method, examples: Examples, draws: int, seed: int) -> ELBO | None:
    """The ELBO on the training data of a run, where it is at hand and the method has one.

    At most as many training examples are used as there are test examples, or 1,000.
    """
    if examples.training is None or not isinstance(method, WithELBO):
        return None
    at_most = max(1000, len(examples.y))
    return method.elbo(examples.training, draws=max(2, draws), seed=seed, examples=at_most)


def unknown_inputs(config: dict[str, Any], run: Path, name: str) -> Tensor:
    """Inputs of a kind the run has never seen: the test part of a data set, or a whole file or folder."""
    preparation = preparation_of(config, run)
    if isinstance(preparation, Untouched):
        if not Path(name).is_file():
            kinds = ", ".join((*ARRAYS, *TABLE_FILES))
            raise DataError(f"{run} was fitted in Python: its unknown inputs must be a file of {kinds}, got {name!r}")
        return preparation.apply(read_inputs([name], preparation, io.StringIO()).raw)
    if preparation.image is not None and Path(name).is_dir():
        return preparation.apply(_pictures_in(Path(name), preparation))
    recipe = Recipe(data=name, target=(config["data"].get("options") or {}).get("target"))
    if preparation.image is None and Path(name).suffix.lower() in TABLE_FILES:
        return preparation.apply(rows_from_csv(Path(name), preparation))
    raw = open_for(recipe if Path(name).suffix.lower() in TABLE_FILES else replace(recipe, target=None))
    images = raw.x_test if is_known(name) else torch.cat((raw.x_train, raw.x_test))
    return preparation.apply(refit(images, raw, preparation))


def _pictures_in(folder: Path, preparation: Preparation) -> Tensor:
    """Every picture in a folder and its sub-folders: what is unknown needs no classes."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_FILES)
    if not files:
        raise DataError(f"{folder}: no PNG or JPEG pictures in it")
    return torch.stack([preparation.prepare_image(file) for file in files])


def with_unknown(examples: Examples, unknown: Tensor, what: str) -> Examples:
    """The same examples against other unknown inputs."""
    return replace(examples, unknown=unknown, unknown_what=what)


def as_pictures(x: Tensor, preparation: Preparation) -> Tensor | None:
    """Prepared inputs as images with levels from 0 to 1, or None for a table."""
    layout = preparation.image
    if layout is None:
        return None
    levels = (x * preparation.scale[0] + preparation.mean[0]) * preparation.unit / layout.maximum
    return levels.clamp(0, 1).reshape(len(x), *layout.raw_shape)


def refit(raw: Tensor, dataset: DataSet, preparation: Preparation) -> Tensor:
    """Raw examples of another data set in the layout of the run's own: size, colours and levels."""
    layout = preparation.image
    if layout is None:
        if dataset.image is not None or raw.shape[1] != len(preparation.columns):
            given = "images" if dataset.image is not None else f"{raw.shape[1]} columns"
            raise DataError(f"this run takes {len(preparation.columns)} columns, {dataset.name} has {given}")
        return raw
    if dataset.image is None:
        raise DataError(f"this run takes images, {dataset.name} is a table")
    if tuple(raw.shape[1:]) == layout.raw_shape and dataset.image.maximum == layout.maximum:
        return raw
    from PIL import Image

    levels = (raw.double() * (255.0 / dataset.image.maximum)).round().clamp(0, 255).to(torch.uint8)
    pictures = (np.moveaxis(picture, 0, -1) if picture.ndim == 3 else picture for picture in levels.numpy())
    # Unknown pictures are taken as they are: turning their polarity round would make them more alike.
    return torch.stack([preparation.prepare_image(Image.fromarray(one), invert=False) for one in pictures])


def _recipe(config: dict[str, Any], run: Path, data: str | None) -> Recipe:
    recipe = recipe_of(config, run)
    if data is None:
        return recipe
    moved = replace(recipe, data=data)
    if is_known(data) or Path(data).suffix.lower() not in TABLE_FILES:
        # Another split of the run's own data would test it on what it was trained on.
        own = not is_known(data) or canonical(data) == config["data"]["name"]
        moved = replace(moved, target=None, ignore=(), split=moved.split if own else None)
    elif Path(data).expanduser().is_file():
        moved = replace(moved, target=_target_in(Path(data).expanduser(), config["data"], moved.target))
    return moved if Path(data).is_dir() else replace(moved, size=None)


def _target_in(path: Path, about: Mapping[str, Any], asked: str | None) -> str | None:
    """The run's target in another table: by its name, wherever it is; by its place only where there are no names."""
    name = str(about["target_name"])
    rows = read_rows(path, expected=[name, *(column["name"] for column in about["preparation"]["columns"])])
    return name if rows.header or name in rows.names else asked


def _from_arrays(config: dict[str, Any], run: Path, data: str | None, preparation: Untouched) -> Examples:
    """All of an archive of arrays that the network takes as they are: `x` and `y`, or its `x_test` and `y_test`."""
    wanted = "an .npz file with test examples x and y, as its network takes them"
    if data is None:
        own = " and --network module:factory" if config.get("network") is None else ""
        raise RunError(
            f"{run} was fitted in Python and does not know its data: give --data, {wanted}{own and ','}{own}"
        )
    path = Path(data).expanduser()
    if path.suffix.lower() not in ARRAY_FILES:
        raise DataError(f"{run} was fitted in Python: --data must be {wanted}, got {data}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    arrays = {name.lower(): array for name, array in read_arrays(path).items()}
    for x_name, y_name in (("x_test", "y_test"), ("x", "y")):
        if {x_name, y_name} <= set(arrays):
            x = fit_array(arrays[x_name], preparation, f"{path}: {x_name}")
            y = _targets(arrays[y_name], config, f"{path}: {y_name}")
            if len(x) != len(y):
                raise DataError(f"{path}: {x_name} holds {len(x)} examples but {y_name} {len(y)} targets")
            return Examples(preparation.apply(x), y, f"all of {path.stem}")
    raise DataError(f"{path}: expected arrays x and y, found {', '.join(sorted(arrays)) or 'nothing'}")


def _targets(array: NDArray[Any], config: dict[str, Any], what: str) -> Tensor:
    if array.dtype.kind not in "biuf" or array.ndim == 0 or not np.isfinite(array).all():
        raise DataError(f"{what} must hold finite numbers, one or more for each example, got {array.dtype}")
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    classes = likelihoods.from_spec(config["likelihood"]).kind == "classification"
    whole = array.dtype.kind in "biu" or bool((array == np.floor(array)).all())
    return torch.from_numpy(array.astype(np.int64 if classes and whole else np.float64))


def _other(config: dict[str, Any], raw: DataSet, recipe: Recipe, preparation: Preparation) -> Examples:
    about = config["data"]
    if raw.kind != about["kind"]:
        raise DataError(f"{raw.name} is a {raw.kind}, this run was trained on a {about['kind']}")
    if is_known(recipe.data):
        x, y, what = refit(raw.x_test, raw, preparation), raw.y_test, f"the test part of {raw.name}"
    else:
        x, y, what = _whole(raw, recipe, preparation), _in_order(raw), f"all of {raw.name}"
    inputs = preparation.apply(x)
    if raw.kind == "regression":
        return Examples(inputs, y, what)
    labels, is_unknown = _translate(raw, y, about["class_names"], about.get("withheld") or [])
    if bool(is_unknown.all()):
        raise DataError(f"{raw.name} holds nothing but withheld classes: give it as --ood")
    unknown = inputs[is_unknown] if bool(is_unknown.any()) else None
    named = f"withheld: {', '.join(about['withheld'])}" if unknown is not None else None
    return Examples(inputs[~is_unknown], labels[~is_unknown], what, unknown, named)


def _whole(raw: DataSet, recipe: Recipe, preparation: Preparation) -> Tensor:
    path = Path(recipe.data).expanduser()
    if path.suffix.lower() in TABLE_FILES:
        # Categories are coded by the run's own list, not by that of this file.
        return rows_from_csv(path, preparation, target=raw.target_name)
    if raw.train_rows is None or raw.test_rows is None:
        return refit(torch.cat((raw.x_train, raw.x_test)), raw, preparation)
    x = torch.empty(len(raw.x_train) + len(raw.x_test), *raw.shape, dtype=raw.x_train.dtype)
    x[raw.train_rows], x[raw.test_rows] = raw.x_train, raw.x_test
    return refit(x, raw, preparation)


def _in_order(raw: DataSet) -> Tensor:
    if raw.train_rows is None or raw.test_rows is None:
        return torch.cat((raw.y_train, raw.y_test))
    y = torch.empty(len(raw.y_train) + len(raw.y_test), dtype=raw.y_train.dtype)
    y[raw.train_rows], y[raw.test_rows] = raw.y_train, raw.y_test
    return y


def _translate(raw: DataSet, y: Tensor, known: Sequence[str], withheld: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Labels by the run's own numbering, and which examples are of withheld classes."""
    number = []
    for name in raw.class_names:
        if name not in known and name not in withheld:
            raise DataError(f"{raw.name} has a class {name!r} that this run does not know{nearest(name, known)}")
        number.append(known.index(name) if name in known else -1)
    labels = torch.tensor(number)[y]
    return labels, labels < 0
