"""The bytes of a request as raw examples of a run's layout, or one line on why not.

Nothing is unpickled, no path or address is followed, and a size is checked before memory is spent on it.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bayesify.data import DataError, Preparation
from bayesify.serving.limits import Limits
from bayesify.serving.refusals import Refusal
from bayesify.workflows.inputs import column_value, fit_array

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.requests import Request

JSON, PNG, JPEG = "application/json", "image/png", "image/jpeg"
ARRAYS = ("application/x-npy", "application/octet-stream")
_DEEPEST = 6


def content_type(request: Request) -> str:
    """The type of a body without its parameters, in lower case."""
    return str(request.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def body_of(request: Request, limits: Limits) -> bytes:
    """All bytes of a request, as long as they are few enough and arrive in time."""
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise Refusal(415, "send the body as it is: compressed bodies are not read")
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise too_large(limits)
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {limits.seconds:g} seconds") from None
    return b"".join(parts)


def too_large(limits: Limits) -> Refusal:
    """What is said to a body beyond the limit; the rest of it is not waited for."""
    return Refusal(413, f"the body is larger than {limits.body:,} bytes: send fewer inputs", {"Connection": "close"})


def parse_json(body: bytes) -> Any:
    """A JSON value; NaN and infinity, which JSON does not have, are refused by name."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON" if body else "the body is empty: expected JSON") from None


def examples_from_json(value: Any, preparation: Preparation) -> Tensor:
    """One example or many: nested lists of numbers, or objects with a value for each column of a table."""
    rows = value if isinstance(value, list) else [value]
    if rows and isinstance(rows[0], dict):
        if not preparation.columns:
            raise Refusal(422, "this model takes images or arrays: give lists of numbers instead of objects")
        value = []
        for number, row in enumerate(rows):
            where = f"input {number}"
            if not isinstance(row, dict):
                raise Refusal(422, f"{where}: expected an object like the first")
            unknown = set(row) - {column.name for column in preparation.columns}
            if unknown:
                raise Refusal(422, f"{where}: there is no column {min(unknown)!r}")
            try:
                cells = [column_value(row, column.name, column.categories, where) for column in preparation.columns]
            except DataError as problem:
                raise Refusal(422, str(problem)) from None
            value.append(cells)
    return fitted(numbers(value), preparation)


def examples_from_npy(body: bytes, preparation: Preparation) -> Tensor:
    """One example or many from the bytes of a .npy file."""
    stream = io.BytesIO(body)
    reading = np.lib.format
    try:
        version = reading.read_magic(stream)
        read_header = reading.read_array_header_1_0 if version == (1, 0) else reading.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except (ValueError, EOFError, OverflowError):
        raise Refusal(400, "not a .npy file: send what numpy.save writes") from None
    if dtype.hasobject or dtype.kind not in "biuf":
        raise Refusal(422, f"the array must hold numbers, got {dtype}")
    held = len(body) - stream.tell()
    if math.prod(shape) * dtype.itemsize != held:
        raise Refusal(400, f"a .npy file of shape {list(shape)} and type {dtype} cannot hold {held} bytes of numbers")
    flat = np.frombuffer(body, dtype, offset=stream.tell())
    return fitted(flat.reshape(shape, order="F" if fortran else "C"), preparation)


def example_from_picture(body: bytes, preparation: Preparation, limits: Limits) -> Tensor:
    """One example from the bytes of a PNG or JPEG file: size, colours and polarity become those of training."""
    import PIL.Image
    import PIL.ImageOps

    if preparation.image is None:
        raise Refusal(422, "this model takes rows of a table or arrays, not pictures")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(body), formats=("PNG", "JPEG")) as opened:
                if opened.width * opened.height > limits.pixels:
                    raise Refusal(413, f"a picture may have {limits.pixels:,} pixels: send a smaller one")
                opened.load()
                picture = PIL.ImageOps.exif_transpose(opened)
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning):
        raise Refusal(413, f"a picture may have {limits.pixels:,} pixels: send a smaller one") from None
    except (OSError, SyntaxError, ValueError):
        # Pillow reports broken PNG chunks as SyntaxError.
        raise Refusal(400, "not a PNG or JPEG picture, or a damaged one") from None
    try:
        return preparation.prepare_image(picture)[None].double()
    except DataError as problem:
        raise Refusal(422, str(problem)) from None


def fitted(array: NDArray[Any], preparation: Preparation) -> Tensor:
    """An array of one example or many, in raw units, as `[n, *raw]` float64."""
    if array.size and not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinity"
        raise Refusal(422, f"the inputs hold {what}: every number must be finite")
    try:
        # What lies in the bytes of a request cannot be written to, and torch wants to.
        return fit_array(array if array.flags.writeable else array.copy(), preparation, "inputs")
    except DataError as problem:
        raise Refusal(422, str(problem)) from None


def numbers(value: Any, *, truths: bool = False) -> NDArray[np.float64]:
    """Nested lists of numbers (or truth values) as an array; text, null and ragged lists are named."""
    _check_numbers(value, {int, float, bool} if truths else {int, float}, _DEEPEST)
    try:
        return np.array(value, dtype=np.float64)
    except ValueError:
        raise Refusal(422, "the lists of numbers are ragged: all examples must have the same shape") from None
    except OverflowError:
        raise Refusal(422, "a number is too large for 64 bits") from None


def _check_numbers(value: Any, allowed: set[type], depth: int) -> None:
    if isinstance(value, list):
        if depth == 0:
            raise Refusal(422, f"lists are nested more than {_DEEPEST} deep")
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
    raise Refusal(422, f"expected numbers, got {shown}")


def _refuse_constant(name: str) -> float:
    raise Refusal(422, f"the body holds {name}, which JSON does not have: every number must be finite")
