"""Tensors of the v2 protocol: JSON numbers or, by the binary extension, bytes after the JSON part of a body."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.exceptions import HTTPException

from bayesify.errors import nearest
from bayesify.serving.input_arrays import number_array
from bayesify.serving.limits import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATATYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
NAMES = {np.dtype(code): name for name, code in DATATYPES.items()}


def decode(tensor: Any, binary: memoryview, limits: Limits) -> NDArray[Any]:
    """The array of an input tensor; `binary` is everything that followed the JSON part."""
    if not isinstance(tensor, dict):
        raise HTTPException(400, "an input must be an object with name, shape, datatype and data")
    shape, dtype = _shape(tensor.get("shape")), _dtype(tensor.get("datatype"))
    parameters = tensor.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise HTTPException(400, "the parameters of an input must be an object")
    size = parameters.get("binary_data_size")
    if size is None:
        if len(binary):
            raise HTTPException(400, "bytes follow the JSON part, but no input says binary_data_size")
        return _from_json(tensor, shape, dtype)
    expected = math.prod(shape) * dtype.itemsize
    if "data" in tensor:
        raise HTTPException(400, "an input has data or binary_data_size, not both")
    if size != expected or len(binary) != expected:
        sizes = f"binary_data_size is {size!r} and {len(binary)} bytes follow"
        raise HTTPException(400, f"{list(shape)} of {tensor['datatype']} are {expected} bytes, but {sizes}"[:200])
    if 8 * math.prod(shape) > limits.decoded:
        raise HTTPException(413, f"a tensor may have {limits.decoded // 8:,} numbers: send fewer inputs")
    array: NDArray[Any] = np.frombuffer(binary, np.uint8 if dtype.kind == "b" else dtype).reshape(shape)
    if dtype.kind == "b" and not np.isin(array, (0, 1)).all():
        raise HTTPException(422, "BOOL must be bytes of 0 and 1")
    return array


def describe(array: NDArray[Any]) -> tuple[str, list[int]]:
    """Datatype and shape of an output."""
    return NAMES[array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype], list(array.shape)


def encode(array: NDArray[Any]) -> bytes:
    """The bytes of an output, row by row, little-endian."""
    return np.ascontiguousarray(array, DATATYPES[describe(array)[0]]).tobytes()


def _from_json(tensor: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not isinstance(tensor.get("data"), list):
        raise HTTPException(400, "data must be a list of numbers (or give binary_data_size)")
    array = number_array(tensor["data"], booleans=dtype.kind == "b")
    if array.size != math.prod(shape):
        raise HTTPException(400, f"shape {list(shape)} needs {math.prod(shape)} numbers, data has {array.size}"[:200])
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not ((array == np.floor(array)) & (array >= bounds.min) & (array <= bounds.max)).all():
            raise HTTPException(422, f"{tensor['datatype']} must be whole numbers from {bounds.min} to {bounds.max}")
    elif dtype.kind == "b" and not np.isin(array, (0, 1)).all():
        raise HTTPException(422, "BOOL must be true or false")
    elif dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(dtype).astype(np.float64)
    return array.reshape(shape)


def _shape(shape: Any) -> tuple[int, ...]:
    # Few and small, so that their product is cheap to compute.
    if not isinstance(shape, list) or not 0 < len(shape) <= 8 or not all(map(_is_size, shape)):
        raise HTTPException(400, "shape must be a list of 1 to 8 whole numbers")
    return tuple(shape)


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size < 1 << 31


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or name not in DATATYPES:
        raise HTTPException(400, f"unknown datatype {name!r}"[:80] + nearest(str(name)[:20], DATATYPES))
    return np.dtype(DATATYPES[name])
