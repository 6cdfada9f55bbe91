"""Drawings as inputs of a network: ink is boxed, centred by mass and scaled down, as the training images were.

MNIST: a black-and-white digit is scaled, its aspect kept, to fit a box of 20 x 20, which gives it grey levels, and is
placed in 28 x 28 with its centre of mass in the middle (Y. LeCun et al., Gradient-based learning applied to document
recognition, 1998). The 8x8 digits: a bitmap of 32 x 32, as high as the digit, counted in blocks of 4 x 4, so levels are
0 ... 16 (E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits, UCI repository, 1998).
"""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bayesify.data import DataError, Preparation
from bayesify.data.images import ImageLayout, fit_to_layout, open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    Ink = NDArray[np.float64]

Stroke = Sequence[Sequence[float]]
# The sets whose images were made by boxing and centring; others are taken as they are.
BOXED = ("mnist", "digits")
# A multiple of 28 and of 8: images of those sizes can be enlarged and reduced without a change.
SIDE = 224
_FAINT = 0.02
# JPEG artefacts beside an edge are not ink.
_NOISE = 0.12


def digit(
    strokes: Sequence[Stroke],
    preparation: Preparation,
    *,
    pen: float = 0.1,
    boxed: bool = True,
    under: Ink | None = None,
) -> Tensor:
    """Strokes on a pad of side 1 as one raw example in the training layout; `preparation.apply` takes its `[None]`."""
    return example(ink(strokes, pen, under), layout_of(preparation), boxed=boxed)


def ink(strokes: Sequence[Stroke], pen: float = 0.1, under: Ink | None = None) -> Ink:
    """Strokes of points `[x, y]` in 0 ... 1 (y downwards) by a round pen, as darkness 0 ... 1, `[SIDE, SIDE]`."""
    from PIL import Image, ImageDraw

    page = Image.new("L", (SIDE, SIDE)) if under is None else Image.fromarray((255 * under).round().astype(np.uint8))
    drawing = ImageDraw.Draw(page)
    radius = max(0.5 * pen * SIDE, 0.5)
    for stroke in strokes:
        points = [(SIDE * float(x), SIDE * float(y)) for x, y in stroke]
        for x, y in points:
            drawing.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
        if len(points) > 1:
            drawing.line(points, fill=255, width=max(1, round(2 * radius)), joint="curve")
    return np.asarray(page, dtype=np.float64) / 255


def example(drawn: Ink, layout: ImageLayout, *, boxed: bool = True) -> Tensor:
    """Ink `[height, width]` as a raw example in the layout of the training images."""
    if boxed and layout.channels == 1:
        small = _blocks(drawn) if (layout.height, layout.width) == (8, 8) else _boxed(drawn, layout)
        return _levels(small, layout)
    return fit_to_layout(_picture(drawn), layout, invert=layout.background == "light")


def levels_ink(picture: Tensor) -> Ink:
    """A picture of levels 0 ... 1, `[height, width]` or `[channels, height, width]`, as ink on the pad."""
    grey = picture if picture.dim() == 2 else picture.mean(0)
    return on_pad(grey.double().cpu().numpy())


def file_ink(path: str | Path) -> Ink:
    """A PNG or JPEG file as ink on the pad."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        raise DataError(f"{path} does not exist: give the path of the image that was on the pad") from None
    return on_pad(_read_ink(data))


def picture_ink(encoded: str) -> Ink:
    """A PNG or JPEG in base64 as ink: grey levels, inverted where the background is light."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:  # binascii.Error, or letters that are not ASCII
        raise DataError("the image could not be read: expected a PNG or JPEG") from None
    return _read_ink(data)


def _read_ink(data: bytes) -> Ink:
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as opened:
            if opened.width * opened.height > 4_000_000:
                raise DataError(
                    f"the image has {opened.width} x {opened.height} pixels, more than 4,000,000: make it smaller"
                )
            opened.load()
            noise = _NOISE if opened.format == "JPEG" else 0.0
            grey = np.asarray(open_image(ImageOps.exif_transpose(opened)).convert("L"), dtype=np.float64) / 255
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError("the image has more than 4,000,000 pixels: make it smaller") from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error) as problem:
        if isinstance(problem, DataError):
            raise
        raise DataError("the image could not be read: expected a PNG or JPEG") from None
    border = np.concatenate((grey[0], grey[-1], grey[:, 0], grey[:, -1]))
    dark = 1 - grey if float(np.median(border)) > 0.5 else grey
    return np.where(dark < noise, 0.0, dark)


def on_pad(drawn: Ink) -> Ink:
    """Ink of any size fitted into the pad, its aspect kept."""
    from PIL.Image import Resampling

    height, width = drawn.shape
    scale = SIDE / max(height, width)
    shape = max(1, round(height * scale)), max(1, round(width * scale))
    pad = np.zeros((SIDE, SIDE))
    top, left = (SIDE - shape[0]) // 2, (SIDE - shape[1]) // 2
    enlarged = _picture(drawn).resize((shape[1], shape[0]), Resampling.NEAREST if scale >= 1 else Resampling.BOX)
    pad[top : top + shape[0], left : left + shape[1]] = np.asarray(enlarged, dtype=np.float64) / 255
    return pad


def empty(drawn: Ink) -> bool:
    """Whether there is nothing on the pad."""
    return bool(drawn.max(initial=0.0) < _NOISE)


def layout_of(preparation: Preparation) -> ImageLayout:
    """The layout of a run's images; a table has none."""
    if preparation.image is None:
        raise DataError(f"this run takes {len(preparation.columns)} columns of a table, not images")
    return preparation.image


def _boxed(drawn: Ink, layout: ImageLayout) -> Ink:
    box = round(min(layout.height, layout.width) * 20 / 28)
    inked = _cropped(drawn)
    scale = box / max(inked.shape)
    small = _resized(inked, *(max(1, round(side * scale)) for side in inked.shape))
    # Rounded up: in the first 300 MNIST test images the centre lies less than a pixel beyond the middle, never before.
    return _centred(small, layout.height, layout.width, lambda shift: math.ceil(shift - 1e-9))


def _blocks(drawn: Ink) -> Ink:
    inked = _cropped(drawn)
    # The bitmaps are as high as the digit and leave a margin at both sides.
    scale = min(32 / inked.shape[0], 26 / inked.shape[1])
    bitmap = _resized(inked, *(max(1, round(side * scale)) for side in inked.shape)) >= 0.5
    page = _centred(bitmap.astype(np.float64), 32, 32)
    counts: Ink = page.reshape(8, 4, 8, 4).sum((1, 3)) / 16
    return counts


def _cropped(drawn: Ink) -> Ink:
    rows, columns = (np.flatnonzero((drawn >= _FAINT).any(axis)) for axis in (1, 0))
    if len(rows) == 0:
        raise DataError("the pad is empty: there is nothing to predict")
    return drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _centred(small: Ink, height: int, width: int, to_whole: Callable[[float], int] = round) -> Ink:
    """The centre of mass in the middle, as far as that leaves all of it inside."""
    page, mass = np.zeros((height, width)), max(float(small.sum()), 1e-12)
    corner = []
    for side, whole, axis in ((small.shape[0], height, 1), (small.shape[1], width, 0)):
        centre = float((small.sum(axis) * (np.arange(side) + 0.5)).sum()) / mass
        corner.append(min(max(to_whole(whole / 2 - centre), 0), whole - side))
    top, left = corner
    page[top : top + small.shape[0], left : left + small.shape[1]] = small
    return page


def _resized(drawn: Ink, height: int, width: int) -> Ink:
    from PIL.Image import Resampling

    shrinking = drawn.shape[0] >= height and drawn.shape[1] >= width
    # Area averages: that is what turns black and white into grey levels.
    resized = _picture(drawn).resize((width, height), Resampling.BOX if shrinking else Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float64) / 255


def _picture(drawn: Ink) -> Image:
    from PIL import Image

    return Image.fromarray((255 * drawn).round().astype(np.uint8))


def _levels(small: Ink, layout: ImageLayout) -> Tensor:
    shown = 1 - small if layout.background == "light" else small
    levels = torch.from_numpy(shown) * layout.maximum
    return levels.round().to(torch.uint8) if layout.maximum > 1 else levels.float()
