"""Normals on a GPU by one Triton kernel, where no compiler makes them part of something larger.

Step by step the function of `noise.py` is some sixty passes over memory. Here the two hashes, the radius and the angle
of a pair stay in registers, and only the normals are written.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512  # pairs for each program
_WARPS = 4
_TURN = tl.constexpr(2 * math.pi / 2**24)
_LARGEST = tl.constexpr(1.0 - 2**-24)


def normal(keys: Tensor, size: int, start: int) -> Tensor:
    """`noise.normal`, to rounding.

    Args:
        keys: keys of the noise, `[..., 2]` int32, on a GPU.
        size: number of elements.
        start: number of the first element.

    Returns:
        Normals, `[..., size]` float32.

    """
    rows = keys.reshape(-1, 2).contiguous()
    found = torch.empty(len(rows), size, dtype=torch.float32, device=keys.device)
    first, last = start // 32, -(-(start + size) // 32)
    if found.numel():
        grid = (triton.cdiv((last - first) * 16, _BLOCK), len(rows))
        _normals[grid](rows, found, first * 16, start, size, _BLOCK, num_warps=_WARPS)
    return found.view(*keys.shape[:-1], size)


@triton.jit
def mix(v):
    """The hash "lowbias32" of unsigned 32-bit numbers: `noise.mix`."""
    v = (v ^ (v >> 16)) * 0x7FEB352D
    v = (v ^ (v >> 15)) * 0x846CA68B
    return v ^ (v >> 16)


@triton.jit
def _normals(keys, found, first, start, size, block: tl.constexpr) -> None:
    row = tl.program_id(1).to(tl.int64)
    a = tl.load(keys + 2 * row).to(tl.uint32, bitcast=True)
    b = tl.load(keys + 2 * row + 1).to(tl.uint32, bitcast=True)
    pair = first + tl.program_id(0) * block + tl.arange(0, block)
    h = mix(mix(pair.to(tl.uint32) ^ a) + b)
    g = mix(h ^ 0x5BD1E995)
    unit = tl.minimum(((h >> 8).to(tl.float32) + 0.5) * 2**-24, _LARGEST)
    radius = tl.sqrt(-2.0 * tl.log(unit))
    angle = (g >> 8).to(tl.float32) * _TURN
    one = pair // 16 * 32 + pair % 16 - start
    two = one + 16
    found += row * size
    tl.store(found + one, radius * tl.cos(angle), (one >= 0) & (one < size))
    tl.store(found + two, radius * tl.sin(angle), (two >= 0) & (two < size))
