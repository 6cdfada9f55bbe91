"""The edges of a small grey image: how much of each direction there is in each place, whatever the slant of the image.

Distances between pixels depend on how thick and how slanted a stroke is. Here an image is first made upright: it is
sheared until its ink has no correlation between rows and columns. Then

    feature(place, turn) = sqrt(mean over the pixels of the place of |gradient| max(0, cos(angle - turn))^4)

for places of 6 x 6 pixels, four apart, and eight turns; all features of an image together have length 1. Histograms of
directions: N. Dalal and B. Triggs, "Histograms of oriented gradients for human detection", 2005,
doi:10.1109/CVPR.2005.177.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

TURNS, PLACE, APART, SHARPNESS = 8, 6, 4, 4
# Fewer pixels leave too few places.
FEWEST = 16
# Images at once.
_AT_ONCE = 1000


def edges(x: Tensor) -> Tensor:
    """The edges of grey images; their background is their lowest level.

    Args:
        x: images `[n, height, width]`, `[n, 1, height, width]`, or squares in rows, `[n, pixels]`.

    Returns:
        Features in double precision, `[n, features]`, the same if an image is made brighter.

    Raises:
        ValueError: the inputs are no grey images of at least 16 x 16 pixels.

    """
    images = _as_images(x)
    return torch.cat([_features(upright(piece.double())) for piece in images.split(_AT_ONCE)])


def upright(images: Tensor) -> Tensor:
    """Images `[n, height, width]` above their lowest level, centred by mass and sheared until their ink is upright."""
    ink = images - images.amin((1, 2), keepdim=True)
    height, width = ink.shape[1:]
    mass = ink.sum((1, 2)).clamp(min=1e-12)
    rows = torch.arange(height, dtype=ink.dtype, device=ink.device) - (height - 1) / 2
    columns = torch.arange(width, dtype=ink.dtype, device=ink.device) - (width - 1) / 2
    row, column = (ink.sum(2) @ rows) / mass, (ink.sum(1) @ columns) / mass
    below, beside = rows - row[:, None], columns - column[:, None]
    together = torch.einsum("nhw,nh,nw->n", ink, below, beside)
    spread = (ink.sum(2) * below.square()).sum(1).clamp(min=1e-12)
    slant = together / spread
    half_height, half_width = (height - 1) / 2, (width - 1) / 2
    one, zero = torch.ones_like(row), torch.zeros_like(row)
    # Where each pixel of the upright image comes from, in units of half an image.
    across = torch.stack((one, slant * half_height / half_width, column / half_width), 1)
    down = torch.stack((zero, one, row / half_height), 1)
    size = [len(ink), 1, height, width]
    places = functional.affine_grid(torch.stack((across, down), 1), size, align_corners=True)
    return functional.grid_sample(ink[:, None], places, align_corners=True)[:, 0]


def _features(ink: Tensor) -> Tensor:
    across, down = torch.zeros_like(ink), torch.zeros_like(ink)
    across[:, :, 1:-1] = ink[:, :, 2:] - ink[:, :, :-2]
    down[:, 1:-1] = ink[:, 2:] - ink[:, :-2]
    angle, size = torch.atan2(down, across), across.hypot(down)
    turns = [2 * math.pi * k / TURNS for k in range(TURNS)]
    parts = torch.stack([size * (angle - turn).cos().clamp(min=0) ** SHARPNESS for turn in turns], 1)
    pooled = functional.avg_pool2d(parts, PLACE, APART, padding=1).sqrt()
    return functional.normalize(pooled.flatten(1), dim=1)


def _as_images(x: Tensor) -> Tensor:
    side = math.isqrt(x.shape[1]) if x.ndim == 2 else 0
    if x.ndim == 2 and side * side == x.shape[1]:
        x = x.reshape(-1, side, side)
    elif x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 3 or min(x.shape[1:]) < FEWEST:
        needed = f"grey images of at least {FEWEST} x {FEWEST} pixels"
        raise ValueError(f'layer="edges" needs {needed}, got {list(x.shape[1:])}: use input')
    return x
