"""Images from PNG and JPEG files, converted to the size, colours and background that a network was trained on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from bayesify.data.errors import DAMAGE, DataError, check_one_of
from bayesify.errors import first_line
from bayesify.files import check_regular

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_FILES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class ImageLayout:
    """The layout of raw images: `[height, width]` for grey, `[3, height, width]` for colour.

    Args:
        height: number of rows.
        width: number of columns.
        channels: 1 for grey, 3 for colour.
        maximum: the largest pixel level; the smallest is 0.
        background: "dark" or "light" if at least 75% of the training images have that border, else "mixed".

    Examples:
        >>> bf.data.load("digits").image
        ImageLayout(height=8, width=8, channels=1, maximum=16.0, background='dark')

    """

    height: int
    width: int
    channels: int = 1
    maximum: float = 255.0
    background: str = "mixed"

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one raw image."""
        return (self.height, self.width) if self.channels == 1 else (self.channels, self.height, self.width)


def layout_of(images: Tensor, maximum: float = 255.0) -> ImageLayout:
    """The layout of raw images `[n, height, width]` or `[n, channels, height, width]`."""
    channels = 1 if images.dim() == 3 else images.shape[1]
    height, width = images.shape[-2:]
    return ImageLayout(height, width, channels, maximum, _common_background(images, maximum))


def open_image(source: str | Path | Image) -> Image:
    """An image turned upright, in mode "L" or "RGB", with a white background where it is transparent."""
    import PIL.Image
    import PIL.ImageOps

    if isinstance(source, PIL.Image.Image):
        return _plain(source)
    path = Path(source)
    if path.suffix.lower() not in IMAGE_FILES:
        raise DataError(f"{path}: expected a PNG or JPEG image, got {path.suffix or 'a file without a suffix'!r}")
    try:
        check_regular(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(path, formats=("PNG", "JPEG")) as opened:
                opened.load()
                return _plain(PIL.ImageOps.exif_transpose(opened))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except PIL.UnidentifiedImageError as error:
        raise DataError(f"{path}: not a PNG or JPEG image, or damaged at its beginning") from error
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        raise DataError(f"{path}: the image has too many pixels to be opened safely; make it smaller") from error
    except DAMAGE as error:
        # Pillow reports broken PNG chunks as SyntaxError.
        words = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"{path}: the image is truncated or damaged ({words})") from error


def fit_to_layout(source: str | Path | Image, layout: ImageLayout, invert: bool | Literal["auto"]) -> Tensor:
    """A raw example in the training layout: uint8 where training levels are whole numbers, else float32."""
    check_one_of("invert", invert, (True, False, "auto"))
    levels = pixel_levels(open_image(source), layout.channels, (layout.height, layout.width))
    if invert == "auto":
        background = "light" if _border(levels).double().median() > 127.5 else "dark"
        invert = layout.background in {"dark", "light"} and background != layout.background
    if invert:
        levels = 255 - levels
    if layout.maximum == 255.0:
        return levels
    scaled = levels.double() * (layout.maximum / 255.0)
    return scaled.round().to(torch.uint8) if layout.maximum > 1 else scaled.float()


def pixel_levels(image: Image, channels: int, size: tuple[int, int] | None = None) -> Tensor:
    """Pixel levels of an image, `[height, width]` or `[3, height, width]` uint8, resized to `size` (height, width)."""
    from PIL.Image import Resampling

    if channels not in {1, 3}:
        raise DataError(f"images have 1 or 3 channels, but the training images have {channels}")
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and image.size != (size[1], size[0]):
        # Area averages shrink a drawing without additional blur.
        shrinking = image.height >= size[0] and image.width >= size[1]
        filtering = Resampling.BOX if shrinking else Resampling.BILINEAR
        image = image.resize((size[1], size[0]), filtering)
    levels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return levels if channels == 1 else levels.permute(2, 0, 1).contiguous()


def _plain(image: Image) -> Image:
    import PIL.Image

    if image.mode.startswith("I"):
        # Greys of 16 bits, which Pillow would clip at 255.
        wide = np.asarray(image, dtype=np.int64)
        narrow = wide // 257 if image.mode != "I" or wide.max() > 255 else wide
        return PIL.Image.fromarray(narrow.clip(0, 255).astype(np.uint8))
    if image.mode in {"LA", "PA", "RGBA", "La", "RGBa"} or "transparency" in image.info:
        coloured = image.convert("RGBA")
        page = PIL.Image.new("RGBA", coloured.size, "white")
        flat = PIL.Image.alpha_composite(page, coloured).convert("RGB")
        return flat.convert("L") if image.mode in {"LA", "La", "L", "1"} else flat
    return image.convert("L" if image.mode in {"1", "L", "F"} else "RGB")


def _common_background(images: Tensor, maximum: float) -> str:
    if len(images) == 0:
        return "mixed"
    # A thousand images, evenly spaced, represent all of them.
    sample = images[:: max(1, len(images) // 1000)]
    median = _border(sample).double().flatten(1).median(1).values / maximum
    if float((median <= 0.25).double().mean()) >= 0.75:
        return "dark"
    return "light" if float((median >= 0.75).double().mean()) >= 0.75 else "mixed"


def _border(images: Tensor) -> Tensor:
    top_bottom, sides = images[..., [0, -1], :], images[..., 1:-1, [0, -1]]
    return torch.cat((top_bottom.flatten(-2), sides.flatten(-2)), -1)
