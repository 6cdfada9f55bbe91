"""Plots of the inputs themselves: one image, or a gallery with a caption below each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bayesify.plots import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray


def image_gallery(
    images: Any,
    captions: Sequence[str] | None = None,
    *,
    columns: int | None = None,
    title: str = "",
    dark_on_light: bool = True,
    axes: Axes | None = None,
) -> Axes:
    """Images in rows, with captions below them.

    All images share one scale of greys, from the darkest value to the brightest. The gallery is one matplotlib Axes,
    however many images there are.

    Args:
        images: `[n, height, width]`, `[n, channels, height, width]` or `[n, height, width, 3]`.
        captions: one text for each image; a line break starts another line.
        columns: images in a row. By default up to five.
        title: over the plot.
        dark_on_light: whether bright strokes on black become dark strokes on white; other images stay as they are.
        axes: where to draw. By default a new figure.

    Returns:
        The matplotlib Axes.

    Raises:
        ValueError: where the shape of the images, the captions or `columns` do not fit.

    Examples:
        >>> axes = bf.plots.image_gallery(torch.rand(3, 8, 8), ["one", "two", "three"])
        >>> len(axes.images)
        3

    """
    tiles = as_tiles(images, dark_on_light=dark_on_light)
    count, height, width = tiles.shape[:3]
    texts = list(captions or [])
    if texts and len(texts) != count:
        raise ValueError(f"captions must have one line for each of {count} images, got {len(texts)}")
    columns = min(count, columns or (count if count <= 5 else math.ceil(count / math.ceil(count / 5))))
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    rows = math.ceil(count / columns)
    lines = max((text.count("\n") + 1 for text in texts), default=0)
    # Cells in units of an image's width: some air between columns, room for the captions between rows.
    step_x, step_y = 1.12, height / width + 0.1 + 0.18 * lines
    axes = style.canvas(axes, 0.9 * columns * step_x + 0.1, 0.9 * rows * step_y + (0.35 if title else 0.1))
    style.dress(axes, title=title, grid="")
    for place in range(count):
        left, top = (place % columns) * step_x, (place // columns) * step_y
        extent = (left, left + 1.0, top + height / width, top)
        axes.imshow(tiles[place], extent=extent, cmap="gray", vmin=0, vmax=1, interpolation="none")
        if texts:
            words = "\n".join(map(style.plain, texts[place].split("\n")))
            below = axes.text(left + 0.5, top + height / width + 0.04, words, ha="center", va="top", linespacing=1.15)
            below.set(fontsize=style.SMALL_SIZE, color=style.INK, in_layout=False)
    axes.set_xlim(-0.02, columns * step_x - 0.1)
    axes.set_ylim(rows * step_y - 0.08, -0.02)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return axes


def as_tiles(images: Any, *, dark_on_light: bool = True) -> NDArray[np.float64]:
    """Images of any common layout as greys `[n, height, width]` or colours `[n, height, width, 3]` in [0, 1]."""
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    array = array.astype(np.float64)
    if len(array) == 0:
        raise ValueError("images must hold at least one image, got none")
    if array.ndim == 2:
        side = math.isqrt(array.shape[1])
        if side * side != array.shape[1]:
            raise ValueError(f"flat images must be square, got {array.shape[1]} pixels: give [n, height, width]")
        array = array.reshape(-1, side, side)
    if array.ndim == 4 and array.shape[1] in {1, 3}:
        array = np.moveaxis(array, 1, -1)
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in {3, 4} or (array.ndim == 4 and array.shape[-1] != 3):
        raise ValueError(f"images must be [n, height, width] or [n, channels, height, width], got {list(array.shape)}")
    low, high = float(array.min()), float(array.max())
    array = (array - low) / (high - low) if high > low else np.zeros_like(array)
    # Only strokes on black are inverted: a photograph is left as it is.
    if dark_on_light and array.ndim == 3 and np.median(_border(array)) < 0.25:
        array = 1.0 - array
    return array


def _border(tiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The outermost pixels, which show the background whatever the thickness of the stroke."""
    edges = (tiles[:, 0], tiles[:, -1], tiles[:, :, 0], tiles[:, :, -1])
    return np.concatenate([edge.reshape(-1) for edge in edges])
