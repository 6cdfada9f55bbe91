"""Corrupted images, made from clean ones: fifteen kinds for colour images, rotation for digits, five strengths each.

    corrupted = corrupt(images, kind, strength)      uint8 [n, channels, side, side] to the same

The kinds follow Hendrycks and Dietterich ("Benchmarking neural network robustness to common corruptions and
perturbations", 2019). The code and the strengths are ours, so scores are not those of CIFAR-10-C. One seed gives the
same noise at every strength: a stronger corruption is the same one, larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesify.errors import choose

STRENGTHS = (1, 2, 3, 4, 5)


def corrupt(images: Tensor, kind: str, strength: int, seed: int = 0) -> Tensor:
    """Images with one kind of corruption.

    Args:
        images: uint8 `[n, channels, side, side]`.
        kind: one of `KINDS`.
        strength: 1 (weak) to 5 (strong).
        seed: of what is random: noise, directions, clouds.

    Returns:
        uint8 images of the same shape.

    """
    change, values = KINDS[choose("corruption", kind, tuple(KINDS))]
    if strength not in STRENGTHS:
        raise ValueError(f"strength must be 1, 2, 3, 4 or 5, got {strength!r}")
    changed = change(images.float() / 255, values[strength - 1], torch.Generator().manual_seed(seed))
    return (255 * changed).round().clamp(0, 255).to(torch.uint8)


def gaussian_noise(x: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Independent noise in every number."""
    return x + deviation * _normal(x, generator)


def shot_noise(x: Tensor, photons: float, generator: torch.Generator) -> Tensor:
    """The noise of counted light: variance x / photons (a Gaussian in place of the Poisson distribution)."""
    return x + (x / photons).sqrt() * _normal(x, generator)


def impulse_noise(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """A share of the numbers is 0 or 1."""
    chance = torch.rand(x.shape, generator=generator).to(x)
    black_or_white = (torch.rand(x.shape, generator=generator) < 0.5).to(x)
    return torch.where(chance < share, black_or_white, x)


def speckle_noise(x: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    """Noise in proportion to the brightness."""
    return x + deviation * x * _normal(x, generator)


def gaussian_blur(x: Tensor, deviation: float, _: torch.Generator) -> Tensor:
    """A Gaussian kernel."""
    reach = torch.arange(-math.ceil(3 * deviation), math.ceil(3 * deviation) + 1)
    line = torch.exp(-reach.square() / (2 * deviation**2))
    return _filtered(x, line[:, None] * line)


def defocus_blur(x: Tensor, radius: float, _: torch.Generator) -> Tensor:
    """A disk, with a soft edge one pixel wide."""
    reach = torch.arange(-math.ceil(radius), math.ceil(radius) + 1).float()
    return _filtered(x, (radius + 0.5 - torch.hypot(*torch.meshgrid(reach, reach, indexing="ij"))).clamp(0, 1))


def motion_blur(x: Tensor, length: float, generator: torch.Generator) -> Tensor:
    """The mean along a line, in a direction of its own for each image."""
    angle = math.pi * torch.rand(len(x), generator=generator)
    places = torch.linspace(-0.5, 0.5, 2 * math.ceil(length) + 1)
    found = torch.zeros_like(x)
    for place in places:
        found += _moved(x, length * place * angle.cos(), length * place * angle.sin())
    return found / len(places)


def zoom_blur(x: Tensor, largest: float, _: torch.Generator) -> Tensor:
    """The mean over enlargements from 1 to `largest`."""
    scales = torch.linspace(1, largest, 11)
    return torch.stack([_mapped(x, torch.eye(2) / scale) for scale in scales]).mean(0)


def fog(x: Tensor, thickness: float, generator: torch.Generator) -> Tensor:
    """White clouds: smooth noise of several sizes, x (1 - t c) + t c with c in 0..1."""
    clouds = torch.zeros(len(x), 1, *x.shape[-2:])
    for size in (2, 4, 8, 16):
        rough = torch.rand(len(x), 1, size, size, generator=generator)
        clouds += F.interpolate(rough, x.shape[-2:], mode="bilinear", align_corners=True) / size
    lowest, highest = clouds.amin((1, 2, 3), keepdim=True), clouds.amax((1, 2, 3), keepdim=True)
    share = thickness * (0.3 + 0.7 * (clouds - lowest) / (highest - lowest)).to(x)
    return x * (1 - share) + share


def brightness(x: Tensor, more: float, _: torch.Generator) -> Tensor:
    """A number added everywhere."""
    return x + more


def contrast(x: Tensor, share: float, _: torch.Generator) -> Tensor:
    """A share of the distance from the image's mean colour is left."""
    mean = x.mean((-2, -1), keepdim=True)
    return mean + share * (x - mean)


def elastic(x: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """Pixels moved by a smooth field with this mean distance."""
    rough = torch.randn(len(x), 2, 6, 6, generator=generator)
    field = F.interpolate(rough, x.shape[-2:], mode="bicubic", align_corners=True)
    field = field / field.norm(dim=1).mean((-2, -1))[:, None, None, None]
    return _moved(x, distance * field[:, 0], distance * field[:, 1])


def pixelate(x: Tensor, length: float, _: torch.Generator) -> Tensor:
    """The mean of each block; a length of 1.5 has blocks of one and of two pixels in turn."""
    block = (torch.arange(x.shape[-1]) / length).floor().long()
    members = F.one_hot(block).to(x)
    mean = members / members.sum(0) @ members.T
    return mean @ x @ mean


def jpeg(x: Tensor, step: float, _: torch.Generator) -> Tensor:
    """As JPEG loses detail: the cosine transform of blocks of 8 x 8, rounded to multiples that grow with frequency."""
    transform = cosine_transform(8).to(x)
    steps = step * (1 + torch.arange(8)[:, None] + torch.arange(8)).to(x) / 255
    side = x.shape[-1]
    padded = F.pad(x, (0, -side % 8, 0, -side % 8), mode="replicate")
    blocks = padded.unfold(2, 8, 8).unfold(3, 8, 8)
    rounded = steps * torch.round(transform @ blocks @ transform.T / steps)
    back = (transform.T @ rounded @ transform).permute(0, 1, 2, 4, 3, 5)
    return back.reshape(padded.shape)[..., :side, :side]


def saturate(x: Tensor, factor: float, _: torch.Generator) -> Tensor:
    """The distance of each pixel from grey, multiplied."""
    grey = x.mean(1, keepdim=True)
    return grey + factor * (x - grey)


def rotation(x: Tensor, degrees: float, _: torch.Generator) -> Tensor:
    """Turned to the left around the centre; black comes in from outside."""
    turn = math.radians(degrees)
    rows = [[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]
    return _mapped(x, torch.tensor(rows), padding="zeros")


def cosine_transform(size: int) -> Tensor:
    """The orthogonal matrix of the discrete cosine transform (II)."""
    number = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / size * (number + 0.5) * number[:, None]) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.float()


Change = Callable[[Tensor, Any, torch.Generator], Tensor]
# What changes, and its size at the five strengths.
KINDS: Mapping[str, tuple[Change, tuple[float, ...]]] = MappingProxyType(
    {
        "gaussian_noise": (gaussian_noise, (0.03, 0.06, 0.09, 0.12, 0.16)),
        "shot_noise": (shot_noise, (300, 120, 60, 35, 20)),
        "impulse_noise": (impulse_noise, (0.01, 0.03, 0.06, 0.1, 0.16)),
        "speckle_noise": (speckle_noise, (0.06, 0.12, 0.18, 0.25, 0.35)),
        "gaussian_blur": (gaussian_blur, (0.5, 0.75, 1.0, 1.3, 1.7)),
        "defocus_blur": (defocus_blur, (0.6, 1.0, 1.5, 2.0, 2.7)),
        "motion_blur": (motion_blur, (2, 3.5, 5, 7, 9)),
        "zoom_blur": (zoom_blur, (1.08, 1.15, 1.23, 1.32, 1.45)),
        "fog": (fog, (0.3, 0.45, 0.6, 0.72, 0.85)),
        "brightness": (brightness, (0.08, 0.16, 0.24, 0.32, 0.42)),
        "contrast": (contrast, (0.7, 0.5, 0.35, 0.22, 0.12)),
        "elastic": (elastic, (0.5, 0.9, 1.3, 1.8, 2.4)),
        "pixelate": (pixelate, (1.25, 1.5, 2, 2.5, 3.5)),
        "jpeg": (jpeg, (4, 8, 13, 20, 30)),
        "saturate": (saturate, (1.4, 1.9, 2.6, 3.8, 6)),
        "rotation": (rotation, (15, 30, 45, 60, 75)),
    }
)
# Those of colour images, and those of digits.
OF_COLOURS = tuple(kind for kind in KINDS if kind != "rotation")
OF_DIGITS = ("rotation", "gaussian_noise", "gaussian_blur")


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator).to(x)


def _filtered(x: Tensor, kernel: Tensor) -> Tensor:
    """Each channel's average under a kernel, which is made to sum to one."""
    reach, channels = kernel.shape[-1] // 2, x.shape[1]
    weights = (kernel / kernel.sum()).to(x).expand(channels, 1, *kernel.shape)
    return F.conv2d(F.pad(x, (reach,) * 4, mode="replicate"), weights, groups=channels)


def _moved(x: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Each pixel fetched from a place so many pixels away: `[n]`, or `[n, side, side]`."""
    offsets = torch.stack([across, down], -1).to(x) * 2 / x.shape[-1]
    grid = _places(x, torch.eye(2)) + offsets.reshape(len(x), *([1, 1] if offsets.dim() == 2 else x.shape[-2:]), 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _mapped(x: Tensor, matrix: Tensor, padding: str = "border") -> Tensor:
    """Each pixel fetched from matrix times its place, from the centre."""
    return F.grid_sample(x, _places(x, matrix), mode="bilinear", padding_mode=padding, align_corners=False)


def _places(x: Tensor, matrix: Tensor) -> Tensor:
    turned = torch.cat([matrix, torch.zeros(2, 1)], 1).to(x).expand(len(x), 2, 3)
    return F.affine_grid(turned, list(x.shape), align_corners=False)
