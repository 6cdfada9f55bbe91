"""Raw inputs in Python as the network of a run takes them: scaled and encoded as its training data was."""

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
    """Raw inputs as the network of a run takes them, scaled and encoded as its training data was: `[n, ...]`, float32.

    Args:
        run: a folder that `bayesify train` made, or the method that was loaded from it.
        inputs: the path of a CSV, .npy, .npz, PNG or JPEG file or of a folder of pictures, or a list of paths; Pillow's
            pictures; a pandas DataFrame, whose columns are found by name; or raw examples in an array or tensor, the
            columns of a table in their order in training.

    """
    notes = run.notes if isinstance(run, Method) else runs.read_config(_folder(run)).get("data")
    plain = (notes or {}).get("preparation")
    if plain is None:
        name = "this method" if isinstance(run, Method) else run
        raise RunError(f"{name} was trained on tensors: it has no preparation, give predict inputs like those")
    preparation = Preparation.from_dict(plain)
    return preparation.apply(_raw(inputs, preparation))


def _folder(run: str | Path) -> Path:
    if not isinstance(run, str | Path):
        raise TypeError(f"run must be a run folder or a loaded method, got {type(run).__name__}: prepare(run, inputs)")
    return Path(run)


def _raw(inputs: Any, preparation: Preparation) -> Tensor:
    several = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if several and all(isinstance(one, str | Path) for one in several):
        return read_inputs([str(one) for one in several], preparation, io.StringIO()).raw
    if preparation.image is not None and several and all(isinstance(one, Image.Image) for one in several):
        return torch.stack([preparation.prepare_image(one) for one in several])
    if hasattr(inputs, "columns") and preparation.image is None:
        inputs = _by_name(inputs, preparation)
        if any(column.categories for column in preparation.columns):
            # A category has its name, even one that looks like a number; in an array of numbers it has its code.
            inputs = np.stack([np.asarray(inputs[name], dtype=object) for name in inputs.columns], -1)
    array = _array(inputs)
    if preparation.image is None and array.dtype.kind in "OUS":
        return _from_cells(array, preparation)
    return fit_array(array, preparation, "inputs")


def _by_name(frame: Any, preparation: Preparation) -> Any:
    """The columns of training, in their order; a frame whose columns have numbers for names is as good as an array."""
    for twice in (name for name, times in Counter(frame.columns).items() if times > 1):
        raise DataError(f"inputs: two columns are named {twice!r}")
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
        raise TypeError("inputs must be rows of equal length, got some that differ") from None
    if array.dtype.kind not in "biufOUS" or array.ndim == 0:
        raise TypeError(
            f"inputs must be raw examples in a file, a DataFrame, an array or a tensor, got {type(inputs).__name__}"
        )
    return array


def _from_cells(array: NDArray[Any], preparation: Preparation) -> Tensor:
    """Rows with text in them, read as those of a CSV file are."""
    if array.ndim == 1:
        array = array[:, None] if len(preparation.columns) == 1 else array[None]
    text = io.StringIO()
    text.name = "inputs"
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow([column.name for column in preparation.columns])
    writer.writerows(["" if cell is None else str(cell) for cell in row] for row in array.tolist())
    text.seek(0)
    return rows_from_csv(text, preparation, header=True)
