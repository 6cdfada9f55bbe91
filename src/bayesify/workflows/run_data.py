"""The data of a run, opened again and prepared as in training: the test part, other data, and unknown inputs."""

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

from bayesify import likelihoods, runs
from bayesify.data import DataError, DataSet, EncodedRows, Preparation, encode_rows
from bayesify.data.catalogue import canonical
from bayesify.data.databases import is_query
from bayesify.data.formats import ARRAY_FILES, TABLE_FILES, is_table, read_arrays, read_rows, suffix_of
from bayesify.data.images import IMAGE_FILES
from bayesify.data.sources import is_known
from bayesify.data.tables import labelled_rows
from bayesify.errors import RunError, TrainingError, counted, nearest
from bayesify.methods import Method
from bayesify.methods.elbo import ELBO
from bayesify.methods.with_elbo import WithELBO
from bayesify.workflows.inputs import ARRAYS, fit_array, prepare_predictable, read_inputs
from bayesify.workflows.load import load_run, recipe_of
from bayesify.workflows.prepare import OF_TABLES, fingerprint, open_for, prepare_data
from bayesify.workflows.python_runs import Unprepared, as_taken, unprepared
from bayesify.workflows.recipe import Recipe


@dataclass(frozen=True)
class Examples:
    """Prepared inputs and targets, the words that name them, and the unknown inputs that go with them.

    `training` has the training examples where they are at hand, and `notices` what a reader of the scores should know.
    """

    x: Tensor
    y: Tensor
    what: str
    unknown: Tensor | None = None
    unknown_what: str | None = None
    training: tuple[Tensor, Tensor] | None = None
    notices: tuple[str, ...] = ()


def withheld_in_words(names: Sequence[str]) -> str:
    """Withheld classes as they read in a sentence.

    Args:
        names: of the classes, at least one.

    Returns:
        Words after which a sentence may go on.

    Examples:
        >>> withheld_in_words(["3"]), withheld_in_words(["3", "5", "8"])
        ('the withheld class 3', 'the withheld classes 3, 5 and 8')

    """
    *first, last = names
    return f"the withheld classes {', '.join(first)} and {last}" if first else f"the withheld class {last}"


def preparation_of(config: Mapping[str, Any], run: Path) -> Preparation:
    """The preparation that is saved with a run; a run that was fitted in Python takes its inputs unchanged."""
    plain = (config.get("data") or {}).get("preparation")
    try:
        return unprepared(config, run) if plain is None else Preparation.from_dict(plain)
    except DataError as problem:
        raise RunError(f"{run / runs.CONFIG} is damaged: {problem}") from None


def open_run(
    run: Path, data: str | None = None, ood: str | None = None, network: str | None = None
) -> tuple[Method, Examples]:
    """Read a run and the examples to score it on.

    Args:
        run: the folder.
        data: other data, or the new place of the run's data, as in `examples_of`.
        ood: unknown inputs instead of the withheld classes, as in `unknown_inputs`.
        network: `module:factory` of the user's network.

    Returns:
        The method and the examples.

    """
    config = runs.read_config(run)
    examples = examples_of(config, run, data)
    if ood is not None:
        examples = replace(examples, unknown=unknown_inputs(config, run, ood), unknown_what=ood)
    method = load_run(run, network)
    unknown = None if examples.unknown is None else as_taken(method, examples.unknown)
    return method, replace(examples, x=as_taken(method, examples.x), unknown=unknown)


def examples_of(config: dict[str, Any], run: Path, data: str | None = None) -> Examples:
    """The test examples of a run, or the examples of other data with the same classes.

    Args:
        config: the configuration of the run.
        run: its folder, for errors.
        data: other data, or the new place of the run's data. Of a known data set the test part is used, of any other
            file every example. For a run that was fitted in Python it must be an .npz file with x and y.

    Returns:
        The examples, with the withheld classes as unknown inputs.

    Raises:
        DataError: the data cannot be read or does not fit the run.
        RunError: the data has changed since training.

    """
    preparation = preparation_of(config, run)
    if isinstance(preparation, Unprepared):
        return _from_arrays(config, run, data, preparation)
    recipe = _recipe(config, run, data)
    raw, problem = None, ""
    try:
        raw = open_for(recipe, preparation.columns)
    except DataError as wrong:
        gone = recipe.data == config["data"].get("path") and not Path(recipe.data).exists()
        if data is None and gone and not is_query(recipe.data):
            message = f"the data of {run} is no longer at {recipe.data}: give the new path with --data"
            raise DataError(message) from None
        if not is_table(recipe.data) or not _readable(recipe.data):
            raise DataError(str(wrong)) from None
        problem = f" ({wrong})"
    if raw is not None and fingerprint(raw) == config["data"].get("fingerprint"):
        prepared = prepare_data(recipe, raw)
        if len(prepared.test[1]) == 0:
            raise RunError(f"{run} was trained on all rows of {raw.name}: give test examples with --data FILE")
        unknown = prepared.unknown if prepared.unknown is not None and len(prepared.unknown) else None
        what = f"the test part of {raw.name}"
        about_unknown = withheld_in_words(config["data"].get("withheld") or []) if unknown is not None else None
        return Examples(*prepared.test, what, unknown, about_unknown, prepared.train)
    if data is None:
        raise RunError(
            f"{recipe.data} has changed since {run} was trained, so its test part may contain training examples: "
            f"to score every example of it anyway, give --data {recipe.data}{problem}"
        )
    if is_table(recipe.data):
        return _other_table(config, recipe, preparation)
    assert raw is not None
    return _other_data(config, raw, recipe, preparation)


def training_examples(config: dict[str, Any], run: Path) -> tuple[Tensor, Tensor] | None:
    """The training examples of a run, where its data is still in its place and unchanged; None otherwise."""
    try:
        preparation = preparation_of(config, run)
        if isinstance(preparation, Unprepared):
            return None
        recipe = _recipe(config, run, None)
        raw = open_for(recipe, preparation.columns)
        return prepare_data(recipe, raw).train if fingerprint(raw) == config["data"].get("fingerprint") else None
    except (DataError, RunError, TrainingError):
        return None


def elbo_of(method: Method, examples: Examples, draws: int, seed: int) -> ELBO | None:
    """The ELBO on the training data of a run, where it is at hand and the method has one.

    At most as many training examples are used as there are test examples, or 1,000.
    """
    if examples.training is None or not isinstance(method, WithELBO):
        return None
    at_most = max(1000, len(examples.y))
    return method.elbo(examples.training, draws=max(2, draws), seed=seed, examples=at_most)


def unknown_inputs(config: dict[str, Any], run: Path, name: str) -> Tensor:
    """Inputs of a kind that was not in training: the test part of a known data set, or a whole file or folder."""
    preparation = preparation_of(config, run)
    if isinstance(preparation, Unprepared):
        if not Path(name).is_file():
            kinds = ", ".join((*ARRAYS, *TABLE_FILES))
            raise DataError(f"{run} was fitted in Python: its unknown inputs must be a file of {kinds}, got {name!r}")
        return preparation.apply(read_inputs([name], preparation, io.StringIO()).raw)
    if preparation.image is not None and Path(name).is_dir():
        return preparation.apply(_images_in(Path(name), preparation))
    recipe = Recipe(data=name, target=(config["data"].get("options") or {}).get("target"))
    if preparation.image is None and is_table(name):
        rows = encode_rows(name, preparation)
        good = [reason is None for reason in rows.reasons]
        if not any(good):
            raise DataError(f"{name}: no row can be predicted; the first: {rows.reasons[0]}")
        kept = rows.raw[torch.tensor(good)]
        return prepare_predictable(EncodedRows(kept, [None] * len(kept)), preparation)
    raw = open_for(recipe if is_table(name) else replace(recipe, target=None))
    images = raw.x_test if is_known(name) else torch.cat((raw.x_train, raw.x_test))
    return preparation.apply(to_layout(images, raw, preparation))


def _images_in(folder: Path, preparation: Preparation) -> Tensor:
    """Every image in a folder and its sub-folders; unknown inputs need no classes."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_FILES)
    if not files:
        raise DataError(f"{folder}: expected PNG or JPEG images in the folder, found none")
    return torch.stack([preparation.prepare_image(file) for file in files])


def as_images(x: Tensor, preparation: Preparation) -> Tensor | None:
    """Prepared inputs as images with levels from 0 to 1, or None for a table."""
    layout = preparation.image
    if layout is None:
        return None
    levels = (x * preparation.scale[0] + preparation.mean[0]) * preparation.unit / layout.maximum
    return levels.clamp(0, 1).reshape(len(x), *layout.raw_shape)


def to_layout(raw: Tensor, dataset: DataSet, preparation: Preparation) -> Tensor:
    """Raw examples of another data set in the layout of the run's data: size, colours and levels."""
    layout = preparation.image
    if layout is None:
        if dataset.image is not None or raw.shape[1] != len(preparation.columns):
            layout_of_data = "images" if dataset.image is not None else counted(raw.shape[1], "column")
            raise DataError(
                f"this run takes {counted(len(preparation.columns), 'column')}, {dataset.name} has {layout_of_data}"
            )
        return raw
    if dataset.image is None:
        raise DataError(f"this run takes images, {dataset.name} is a table")
    if tuple(raw.shape[1:]) == layout.raw_shape:
        # Arrays do not say their largest level. Where all levels fit those of training, they are on its scale.
        fits = dataset.image.maximum > layout.maximum >= float(raw.max()) and suffix_of(dataset.source) in ARRAY_FILES
        if fits or dataset.image.maximum == layout.maximum:
            return raw
    from PIL import Image

    levels = (raw.double() * (255.0 / dataset.image.maximum)).round().clamp(0, 255).to(torch.uint8)
    images = (np.moveaxis(image, 0, -1) if image.ndim == 3 else image for image in levels.numpy())
    # Unknown images keep their polarity: inverting them would make them more like the training images.
    return torch.stack([preparation.prepare_image(Image.fromarray(image), invert=False) for image in images])


def _recipe(config: dict[str, Any], run: Path, data: str | None) -> Recipe:
    recipe = recipe_of(config, run)
    if data is None:
        return recipe
    moved = replace(recipe, data=data)
    if is_known(data) or not is_table(data):
        # Any other split of the same data would test the run on its training examples.
        same_data = not is_known(data) or canonical(data) == config["data"]["name"]
        nothing: dict[str, Any] = {name: () if isinstance(getattr(moved, name), tuple) else None for name in OF_TABLES}
        moved = replace(
            moved,
            **nothing,
            header=None,
            test=None,
            fold=moved.fold if same_data else None,
            split=moved.split if same_data else None,
        )
    elif _readable(data):
        moved = replace(moved, target=_target_in(data, config["data"], moved.target))
    return moved if Path(data).is_dir() else replace(moved, size=None)


def _readable(data: str) -> bool:
    """Whether a table is there: the address of a query, or a file."""
    return is_query(data) or Path(data).expanduser().is_file()


def _target_in(path: str, about: Mapping[str, Any], column: str | None) -> str | None:
    """The run's target in another table: by name in any column; by `column` only where the table has no header."""
    name = str(about["target_name"])
    rows = read_rows(path, expected=[name, *(column["name"] for column in about["preparation"]["columns"])])
    return name if rows.header or name in rows.names else column


def _from_arrays(config: dict[str, Any], run: Path, data: str | None, preparation: Unprepared) -> Examples:
    """All examples of an .npz file for a network that takes them unchanged: `x_test` and `y_test`, or `x` and `y`."""
    wanted = "an .npz file with test examples x and y, as its network takes them"
    if data is None:
        flags = ", and --network module:factory" if config.get("network") is None else ""
        raise RunError(f"{run} was fitted in Python and does not record its data: give --data, {wanted}{flags}")
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


def _other_data(config: dict[str, Any], raw: DataSet, recipe: Recipe, preparation: Preparation) -> Examples:
    about = config["data"]
    if raw.kind != about["kind"]:
        raise DataError(f"{raw.name} is for {raw.kind}, but this run was trained for {about['kind']}")
    if is_known(recipe.data):
        x, y, what = to_layout(raw.x_test, raw, preparation), raw.y_test, f"the test part of {raw.name}"
    else:
        x, y, what = _all_inputs(raw, preparation), _all_targets(raw), f"all of {raw.name}"
    inputs, notices = preparation.apply(x), _resized(raw, preparation)
    if raw.kind == "regression":
        return Examples(inputs, y, what, notices=notices)
    labels, is_unknown = _translate(raw, y, about["class_names"], about.get("withheld") or [])
    if bool(is_unknown.all()):
        raise DataError(f"{raw.name} has only withheld classes: give it as --ood")
    unknown = inputs[is_unknown] if bool(is_unknown.any()) else None
    unknown_what = withheld_in_words(about["withheld"]) if unknown is not None else None
    return Examples(inputs[~is_unknown], labels[~is_unknown], what, unknown, unknown_what, notices=notices)


def _resized(raw: DataSet, preparation: Preparation) -> tuple[str, ...]:
    """A notice where images had another size than those of training."""
    given, wanted = raw.image, preparation.image
    if given is None or wanted is None or (given.height, given.width) == (wanted.height, wanted.width):
        return ()
    return (f"{raw.name}: {given.height} x {given.width} images were resized to {wanted.height} x {wanted.width}",)


def _other_table(config: dict[str, Any], recipe: Recipe, preparation: Preparation) -> Examples:
    """All rows of another table that have a target and nothing that training never saw."""
    about = config["data"]
    known, withheld = about["class_names"] or (), about.get("withheld") or ()
    target = -1 if recipe.target is None else recipe.target
    rows = labelled_rows(recipe.data, preparation.columns, target, known, other_classes=withheld)
    inputs, what = preparation.apply(rows.rows.raw), f"all of {Path(recipe.data).stem}"
    if about["kind"] == "regression":
        return Examples(inputs, rows.y, what, notices=rows.notices)
    is_unknown = rows.y >= len(known)
    if bool(is_unknown.all()):
        raise DataError(f"{recipe.data} has only withheld classes: give it as --ood")
    unknown = inputs[is_unknown] if bool(is_unknown.any()) else None
    unknown_what = withheld_in_words(withheld) if unknown is not None else None
    return Examples(inputs[~is_unknown], rows.y[~is_unknown], what, unknown, unknown_what, notices=rows.notices)


def _all_inputs(raw: DataSet, preparation: Preparation) -> Tensor:
    """The inputs of training and test part, in the order of the file."""
    if raw.train_rows is None or raw.test_rows is None:
        return to_layout(torch.cat((raw.x_train, raw.x_test)), raw, preparation)
    x = torch.empty(len(raw.x_train) + len(raw.x_test), *raw.shape, dtype=raw.x_train.dtype)
    x[raw.train_rows], x[raw.test_rows] = raw.x_train, raw.x_test
    return to_layout(x, raw, preparation)


def _all_targets(raw: DataSet) -> Tensor:
    if raw.train_rows is None or raw.test_rows is None:
        return torch.cat((raw.y_train, raw.y_test))
    y = torch.empty(len(raw.y_train) + len(raw.y_test), dtype=raw.y_train.dtype)
    y[raw.train_rows], y[raw.test_rows] = raw.y_train, raw.y_test
    return y


def _translate(raw: DataSet, y: Tensor, known: Sequence[str], withheld: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Labels numbered as in training, and which examples are of withheld classes."""
    numbers = []
    for name in raw.class_names:
        if name not in known and name not in withheld:
            raise DataError(f"{raw.name} has a class {name!r} that was not in training{nearest(name, known)}")
        numbers.append(known.index(name) if name in known else -1)
    labels = torch.tensor(numbers)[y]
    return labels, labels < 0
