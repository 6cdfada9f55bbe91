"""Raw inputs in Python, scaled and encoded as the training data of a run was."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bayesify import runs
from bayesify.data import DataError, EncodedRows, Preparation, encode_rows
from bayesify.data.databases import is_query
from bayesify.data.frames import is_frame, rows_of_columns
from bayesify.errors import RunError, nearest
from bayesify.methods import Method
from bayesify.methods.checks import PREPARED
from bayesify.workflows.inputs import fit_array, prepare_predictable, read_inputs


@overload
def prepare(run: str | Path | Method, inputs: Any, *, reasons: Literal[False] = False) -> Tensor: ...
@overload
def prepare(run: str | Path | Method, inputs: Any, *, reasons: Literal[True]) -> tuple[Tensor, list[str | None]]: ...
def prepare(
    run: str | Path | Method, inputs: Any, *, reasons: bool = False
) -> Tensor | tuple[Tensor, list[str | None]]:
    """Scale and encode raw inputs as the training data of a run was.

    Args:
        run: a folder that `bayesify train` made, or the method that was loaded from it.
        inputs: the path of a CSV, Parquet, Arrow, .npy, .npz, PNG or JPEG file or of a folder of images, or a list of
            paths; Pillow images; a pandas or polars frame, an Arrow table or a list of dictionaries, whose columns are
            matched by name; or raw examples in an array or tensor, with the columns in the order of training.
        reasons: also return for each row why it cannot be predicted, or None. Such rows are zeros, whose prediction
            means nothing. Without `reasons` they are an error.

    Returns:
        Inputs for the method's `predict`, `[n, ...]`, float32; with `reasons` a pair of inputs and reasons.

    Raises:
        RunError: the folder is no run, or the run was trained on tensors and has no preparation.
        DataError: the inputs cannot be read, or do not fit the training data.

    Examples:
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
    folder = run.run if isinstance(run, Method) else _folder(run)
    if folder is not None:
        PREPARED.add(folder.resolve())
    raw = _raw(inputs, preparation)
    rows = raw if isinstance(raw, EncodedRows) else EncodedRows(raw, [None] * len(raw))
    if reasons:
        return prepare_predictable(rows, preparation), rows.reasons
    for number, reason in enumerate(rows.reasons, 1):
        if reason is not None:
            raise DataError(f"inputs, row {number}, {reason} (prepare(..., reasons=True) goes on without such rows)")
    return preparation.apply(rows.raw)


def _folder(run: str | Path) -> Path:
    if not isinstance(run, str | Path):
        raise TypeError(f"run must be a run folder or a loaded method, got {type(run).__name__}: prepare(run, inputs)")
    return Path(run)


def _raw(inputs: Any, preparation: Preparation) -> Tensor | EncodedRows:
    items = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if items and all(isinstance(item, str | Path) for item in items):
        read = read_inputs([str(item) for item in items], preparation, io.StringIO())
        return EncodedRows(read.raw, read.reasons)
    if preparation.image is not None and items and all(isinstance(item, Image.Image) for item in items):
        return torch.stack([preparation.prepare_image(item) for item in items])
    if preparation.image is None and is_frame(inputs) and not is_query(inputs):
        named = _by_name(inputs, preparation)
        if named is not None:
            return encode_rows(named, preparation)
    array = _array(inputs)
    if preparation.image is None and array.dtype.kind in "OUS":
        return _from_cells(array, preparation)
    return fit_array(array, preparation, "inputs")


def _by_name(frame: Any, preparation: Preparation) -> Any:
    """The frame, where its columns have names; one whose column names are numbers is taken as an array."""
    if isinstance(frame, list | tuple):
        return frame
    names = list(frame.column_names if hasattr(frame, "column_names") else frame.columns)
    for name in (name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"inputs: two columns are named {name!r}")
    named = {name.strip() for name in names if isinstance(name, str)}
    if not named:
        return None
    missing = next((column.name for column in preparation.columns if column.name not in named), None)
    if missing is not None:
        raise DataError(f"inputs: there is no column {missing!r}{nearest(missing, named)}")
    return frame


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


def _from_cells(array: NDArray[Any], preparation: Preparation) -> EncodedRows:
    """Rows that hold text, read like the rows of a CSV file."""
    names = [column.name for column in preparation.columns]
    if array.ndim == 1:
        array = array[:, None] if len(names) == 1 else array[None]
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(f"inputs: rows must have the {len(names)} columns {', '.join(names)}, got {list(array.shape)}")
    rows = rows_of_columns(names, array.T.tolist(), "inputs")
    return encode_rows([dict(zip(names, cells, strict=True)) for cells in rows.cells], preparation)
