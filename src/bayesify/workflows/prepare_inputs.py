"""Raw inputs in Python, scaled and encoded as the training data of a run was."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bayesify import runs
from bayesify.data import DataError, Preparation, rows_from_csv
from bayesify.errors import RunError, nearest
from bayesify.methods import Method
from bayesify.workflows.inputs import fit_array, read_inputs


def prepare(run: str | Path | Method, inputs: Any) -> Tensor:
    """Scale and encode raw inputs as the training data of a run was.

    Args:
        run: a folder that `bayesify train` made, or the method that was loaded from it.
        inputs: the path of a CSV, .npy, .npz, PNG or JPEG file or of a folder of images, or a list of paths; Pillow
            images; a pandas DataFrame, whose columns are matched by name; or raw examples in an array or tensor, with
            the columns of a table in the order of training.

    Returns:
        Inputs for the method's `predict`, `[n, ...]`, float32.

    Raises:
        RunError: the folder is no run, or the run was trained on tensors and has no preparation.
        DataError: the inputs cannot be read, or do not fit the training data.

    Example:
        >>> from pathlib import Path
        >>> from bayesify.workflows.recipe import Recipe
        >>> from bayesify.workflows.train import train
        >>> run = train(Recipe(data="digits", method="point", epochs=1), Path("runs/digits"), progress=False).run
        >>> images = bf.data.load("digits").x_test[:2]     # [2, 8, 8], levels from 0 to 16
        >>> inputs = bf.prepare(run, images)               # [2, 64], levels from 0 to 1
        >>> float(images.max()), float(inputs.max())
        (15.0, 0.9375)
        >>> bf.load(run).predict(inputs).probs.shape
        torch.Size([2, 10])

    """
    notes = run.notes if isinstance(run, Method) else runs.read_config(_folder(run)).get("data")
    plain = (notes or {}).get("preparation")
    if plain is None:
        name = "this method" if isinstance(run, Method) else run
        raise RunError(f"{name} was trained on tensors and has no preparation: give predict inputs as in training")
    preparation = Preparation.from_dict(plain)
    return preparation.apply(_raw(inputs, preparation))


def _folder(run: str | Path) -> Path:
    if not isinstance(run, str | Path):
        raise TypeError(f"run must be a run folder or a loaded method, got {type(run).__name__}: prepare(run, inputs)")
    return Path(run)


def _raw(inputs: Any, preparation: Preparation) -> Tensor:
    items = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if items and all(isinstance(item, str | Path) for item in items):
        return read_inputs([str(item) for item in items], preparation, io.StringIO()).raw
    if preparation.image is not None and items and all(isinstance(item, Image.Image) for item in items):
        return torch.stack([preparation.prepare_image(item) for item in items])
    if hasattr(inputs, "columns") and preparation.image is None:
        inputs = _by_name(inputs, preparation)
        if any(column.categories for column in preparation.columns):
            # In a frame a category is written by its name, even "1"; in an array of numbers, by its code.
            inputs = np.stack([np.asarray(inputs[name], dtype=object) for name in inputs.columns], -1)
    array = _array(inputs)
    if preparation.image is None and array.dtype.kind in "OUS":
        return _from_cells(array, preparation)
    return fit_array(array, preparation, "inputs")


def _by_name(frame: Any, preparation: Preparation) -> Any:
    """The columns of training, in their order; a frame whose column names are numbers is taken as an array."""
    for name in (name for name, count in Counter(frame.columns).items() if count > 1):
        raise DataError(f"inputs: two columns are named {name!r}")
    named = {name.strip(): name for name in frame.columns if isinstance(name, str)}
    if not named:
        return frame
    wanted = [column.name for column in preparation.columns]
    missing = next((name for name in wanted if name not in named), None)
    if missing is not None:
        raise DataError(f"inputs: there is no column {missing!r}{nearest(missing, named)}")
    return frame[[named[name] for name in wanted]]


def _array(inputs: Any) -> NDArray[Any]:
    if isinstance(inputs, Tensor):
        values = inputs.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:
        raise TypeError("inputs must be rows of equal length, got rows of different lengths") from None
    if array.dtype.kind not in "biufOUS" or array.ndim == 0:
        raise TypeError(
            f"inputs must be raw examples in a file, a DataFrame, an array or a tensor, got {type(inputs).__name__}"
        )
    return array


def _from_cells(array: NDArray[Any], preparation: Preparation) -> Tensor:
    """Rows that hold text, read like the rows of a CSV file."""
    if array.ndim == 1:
        array = array[:, None] if len(preparation.columns) == 1 else array[None]
    text = io.StringIO()
    text.name = "inputs"
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow([column.name for column in preparation.columns])
    writer.writerows(["" if cell is None else str(cell) for cell in row] for row in array.tolist())
    text.seek(0)
    return rows_from_csv(text, preparation, header=True)
