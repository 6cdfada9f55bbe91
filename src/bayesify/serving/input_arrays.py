"""The bytes of a request as raw examples in the layout of a run.

Nothing is unpickled, no path or address is followed, and sizes are checked before memory is allocated.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from starlette.exceptions import HTTPException
from torch import Tensor

from bayesify.data import DataError, EncodedRows, Preparation
from bayesify.serving.limits import Limits
from bayesify.workflows.inputs import cell_readers, fit_array, read_row

if TYPE_CHECKING:
    import PIL.Image
    from numpy.typing import NDArray
    from starlette.requests import Request

JSON, PNG, JPEG = "application/json", "image/png", "image/jpeg"
ARRAYS = ("application/x-npy", "application/octet-stream")
# A body of this many bytes is decoded in a few milliseconds.
SMALL_BODY = 64 << 10
_DEEPEST = 6
_MOST_AXES = 8
# Bytes of Python's objects for each mark of JSON text: a list or an object, a member, and half of a text.
_OBJECT_BYTES = {b"[": 240, b"{": 240, b",": 32, b":": 32, b'"': 32}


def content_type(request: Request) -> str:
    """The type of a body without its parameters, in lower case."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def header(request: Request, name: bytes) -> str | None:
    """A header of a request, by its name in lower case; None where it has none."""
    # Starlette's own mapping decodes all of them for each question.
    return next((value.decode("latin-1") for key, value in request.scope["headers"] if key == name), None)


async def body_of(request: Request) -> bytes:
    """All bytes of a request; the gate counts them while they arrive."""
    if (header(request, b"content-encoding") or "").strip().lower() not in {"", "identity"}:
        raise HTTPException(415, "compressed bodies are not read: send the body uncompressed")
    return await request.body()


def too_large(limits: Limits) -> HTTPException:
    """The error of a body beyond the limit; the rest of it is read and thrown away, up to a point."""
    return HTTPException(413, f"the body is larger than {limits.body:,} bytes: send fewer inputs")


def json_size(text: bytes) -> int:
    """An upper estimate of the bytes of Python's objects for some JSON text."""
    return sum(size * text.count(mark) for mark, size in _OBJECT_BYTES.items())


def check_json_size(size: int, limits: Limits) -> None:
    """Raise a 413 error where JSON would take more memory than a request may."""
    if size > limits.decoded:
        message = "the JSON has too many values or lists: send fewer inputs, or send them as .npy"
        raise HTTPException(413, message)


def parse_json(body: bytes, limits: Limits) -> Any:
    """A JSON value; NaN and infinity, which JSON does not have, are errors."""
    check_json_size(json_size(body), limits)
    return read_json(body)


def read_json(body: bytes) -> Any:
    """A JSON value of a body that has been counted; in a thread of its own it lets the event loop have its turn."""
    as_float, as_int = (None, None) if len(body) <= SMALL_BODY else (_float, _int)
    try:
        return json.loads(body, parse_constant=_reject_constant, parse_float=as_float, parse_int=as_int)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON" if body else "the body is empty: expected JSON") from None


def examples_from_json(value: Any, preparation: Preparation) -> EncodedRows:
    """One example or several: nested lists of numbers, or objects with a value for each column of a table.

    A value that training never saw is a reason in its row, not an error: the other rows are predicted.
    """
    rows = value if isinstance(value, list) else [value]
    if not rows or not isinstance(rows[0], dict):
        raw = as_examples(number_array(value), preparation)
        return EncodedRows(raw, [None] * len(raw))
    if not preparation.columns:
        raise HTTPException(422, "this model takes images or arrays: give lists of numbers, not objects")
    readers = cell_readers(preparation.columns)
    values, reasons = [], []
    for number, row in enumerate(rows):
        where = f"input {number}"
        if not isinstance(row, dict):
            raise HTTPException(422, f"{where}: expected an object like the first")
        unknown = set(row) - {column.name for column in preparation.columns}
        if unknown:
            raise HTTPException(422, f"{where}: there is no column {min(unknown)!r}")
        try:
            cells, reason = read_row(row, readers, where)
        except DataError as problem:
            raise HTTPException(422, str(problem)) from None
        values.append(cells)
        reasons.append(reason)
    return EncodedRows(torch.tensor(values, dtype=torch.float64), reasons)


def examples_from_npy(body: bytes, preparation: Preparation, limits: Limits) -> Tensor:
    """One example or several from the bytes of a .npy file; its shape must agree with them."""
    stream, npy = io.BytesIO(body), np.lib.format
    try:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except Exception:  # noqa: BLE001 -- NumPy reads the header as Python text, and lets the errors of its parser out
        raise HTTPException(400, "not a .npy file: send what numpy.save writes") from None
    if len(shape) > _MOST_AXES or not all(type(size) is int and 0 <= size < 1 << 31 for size in shape):
        raise HTTPException(400, f"a .npy array must have at most {_MOST_AXES} axes, each of 0 to 2^31 - 1 elements")
    if dtype.hasobject or dtype.kind not in "biuf":
        raise HTTPException(422, f"the array must have numbers, got {dtype}")
    expected, size = math.prod(shape) * dtype.itemsize, len(body) - stream.tell()
    if size != expected:
        raise HTTPException(400, f"a .npy array of {list(shape)} {dtype} has {expected} bytes, not {size}")
    if 8 * math.prod(shape) > limits.decoded:
        raise HTTPException(413, f"an array may have {limits.decoded // 8:,} numbers: send fewer inputs")
    flat = np.frombuffer(body, dtype, offset=stream.tell())
    return as_examples(flat.reshape(shape, order="F" if fortran else "C"), preparation)


def example_from_image(body: bytes, preparation: Preparation, limits: Limits) -> Tensor:
    """One example from the bytes of a PNG or JPEG file, with the size, colours and polarity of the training images."""
    import PIL.Image
    import PIL.ImageOps

    if preparation.image is None:
        raise HTTPException(422, "this model takes rows of a table or arrays, not images")
    most = min(limits.pixels, limits.decoded // 4)
    too_many_pixels = f"an image may have {most:,} pixels: send a smaller one"
    try:
        with PIL.Image.open(io.BytesIO(body), formats=("PNG", "JPEG")) as opened:
            size = opened.width * opened.height
            if size > limits.pixels or size * _pixel_bytes(opened) > limits.decoded:
                raise HTTPException(413, too_many_pixels)
            opened.load()
            image = PIL.ImageOps.exif_transpose(opened)
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        raise HTTPException(413, too_many_pixels) from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error):
        # Pillow reports broken PNG chunks as SyntaxError.
        raise HTTPException(400, "not a PNG or JPEG image, or a damaged one") from None
    try:
        return preparation.prepare_image(image)[None].double()
    except DataError as problem:
        raise HTTPException(422, str(problem)) from None


def _pixel_bytes(image: PIL.Image.Image) -> int:
    """Bytes of one pixel in memory; Pillow keeps colours, and levels of more than 8 bits, in 4."""
    return 1 if image.mode in {"1", "L", "P"} else 4


def as_examples(array: NDArray[Any], preparation: Preparation) -> Tensor:
    """An array of one example or several, in raw units, as `[n, *raw]` float64."""
    if array.size and not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinity"
        raise HTTPException(422, f"the inputs have {what}: every number must be finite")
    try:
        # An array over the bytes of a request is read-only, which torch does not take.
        return fit_array(array if array.flags.writeable else array.copy(), preparation, "inputs")
    except DataError as problem:
        raise HTTPException(422, str(problem)) from None


def number_array(value: Any, *, booleans: bool = False) -> NDArray[np.float64]:
    """Nested lists of numbers (or also booleans) as an array; text, null and ragged lists are errors."""
    _check_numbers(value, {int, float, bool} if booleans else {int, float}, _DEEPEST)
    try:
        return np.array(value, dtype=np.float64)
    except ValueError:
        raise HTTPException(422, "the lists have unequal lengths: all examples must have the same shape") from None
    except OverflowError:
        raise HTTPException(422, "a number is too large for 64 bits") from None


def _check_numbers(value: Any, allowed: set[type], depth: int) -> None:
    if isinstance(value, list):
        if depth == 0:
            raise HTTPException(422, f"lists are nested more than {_DEEPEST} deep")
        kinds = set(map(type, value))
        if list in kinds:
            for part in value:
                _check_numbers(part, allowed, depth - 1)
            return
        wrong = kinds - allowed
        if not wrong:
            return
        value = next(part for part in value if type(part) in wrong)
    elif type(value) in allowed:
        return
    shown = "null" if value is None else json.dumps(value)[:40]
    raise HTTPException(422, f"expected numbers, got {shown}")


# The parser of json runs without a pause, and every other thread waits for it. In a large body a Python function for
# each number lets the event loop have its turn.


def _float(text: str) -> float:
    return float(text)


def _int(text: str) -> int:
    return int(text)


def _reject_constant(name: str) -> float:
    raise HTTPException(422, f"the body has {name}, which is not JSON: every number must be finite")
