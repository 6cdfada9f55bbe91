"""Moments through pooling: the maximum of a window by Clark's formulas pair by pair, its average exactly.

Both treat the members of a window as independent.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.methods.variational.estimators.moments.gaussians import Gaussians, larger

TYPES = (nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)


def refusal(layer: Any) -> str | None:
    """Why a pooling layer's settings are not covered, or None."""
    if getattr(layer, "ceil_mode", False):
        return "whose windows reach beyond the edge (ceil_mode)"
    if getattr(layer, "return_indices", False):
        return "which returns indices"
    if isinstance(layer, nn.MaxPool1d | nn.MaxPool2d) and set(_sides(layer, layer.dilation)) != {1}:
        return "whose windows are dilated"
    if getattr(layer, "count_include_pad", True) is False and any(_sides(layer, layer.padding)):
        return "whose windows at the edge are smaller (count_include_pad)"
    return None


def pooled(layer: Any, x: Gaussians) -> Gaussians:
    """Means and variances after a pooling layer."""
    if x.variance is None:
        return Gaussians(layer(x.mean))
    if isinstance(layer, nn.MaxPool1d | nn.MaxPool2d):
        return _largest(layer, x.mean, x.variance)
    if isinstance(layer, nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d):
        mean = layer(x.mean)
        return Gaussians(mean, layer(x.variance) / _window_sizes(x.variance, mean.shape))
    size = getattr(layer, "divisor_override", None) or math.prod(_sides(layer, layer.kernel_size))
    return Gaussians(layer(x.mean), layer(x.variance) / size)


def _largest(layer: Any, mean: Tensor, variance: Tensor) -> Gaussians:
    # Lower than any member, and high enough that a difference to it over the cube of the least standard deviation, as
    # gradients have it, is finite.
    bottom = -(torch.finfo(mean.dtype).max ** 0.25)
    window = [
        Gaussians(*members)
        for members in zip(_windows(layer, mean, bottom), _windows(layer, variance, 0.0), strict=True)
    ]
    # In rounds of pairs: both members of a pair then have similar distributions, where the formula is most accurate.
    while len(window) > 1:
        odd = [window[-1]] if len(window) % 2 else []
        window = [larger(first, second) for first, second in zip(window[0:-1:2], window[1::2], strict=False)] + odd
    return window[0]


def _windows(layer: Any, x: Tensor, filling: float) -> tuple[Tensor, ...]:
    """The members of all windows: one tensor for each position in a window."""
    kernel, stride = _sides(layer, layer.kernel_size), _sides(layer, layer.stride)
    padding = _sides(layer, layer.padding)
    if any(padding):
        x = nn.functional.pad(x, [side for pad in reversed(padding) for side in (pad, pad)], value=filling)
    first = x.dim() - len(kernel)
    for axis, (size, step) in enumerate(zip(kernel, stride, strict=True), start=first):
        x = x.unfold(axis, size, step)
    return x.flatten(-len(kernel)).unbind(-1)


def _window_sizes(x: Tensor, shape: torch.Size) -> Tensor:
    """How many members each window of an adaptive average has, `[*windows]`."""
    sizes = x.new_ones(())
    for axis in range(2, x.dim()):
        before, after = x.shape[axis], shape[axis]
        counts = [-(-(i + 1) * before // after) - i * before // after for i in range(after)]
        sizes = sizes.unsqueeze(-1) * x.new_tensor(counts)
    return sizes


def _sides(layer: Any, setting: int | tuple[int, ...]) -> tuple[int, ...]:
    axes = 1 if type(layer).__name__.endswith("1d") else 2
    return (setting,) * axes if isinstance(setting, int) else tuple(setting)
