"""The first and the last stage of a fleet's step (`staged.py`) as two GPU kernels, written in Triton.

What a compiler makes of these stages is bound by arithmetic: each number's noise is a hash, a logarithm and a cosine.
Here the two numbers that Box and Muller make of one hash are used together, sine and cosine come from the hardware
(their error, 4e-7, is below that of the draws' precision), and the noise of every draw is made again in registers where
it is needed. Used for scale mixtures and Gaussians with SGD or Adam, and only after the results have been compared
with the plain stages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from bayesify.noise import Stream
from bayesify.priors.densities import Normal, ScaleMixture
from bayesify.training.updates import AdamRule, SGDRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.training.staged import Stages

_BLOCK = 512  # pairs for each program
_STEP_OF_ANGLE = tl.constexpr(2 * math.pi / 2**24)
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


def suits(stages: Stages) -> bool:
    """Whether these kernels do what the stages do."""
    rule = stages.rule
    plain = not rule.group["weight_decay"] and not rule.group.get("momentum")
    known = type(stages.family) in {Normal, ScaleMixture} and type(rule) in {SGDRule, AdamRule}
    return known and plain and stages.fleet.parameters[0].dtype == torch.float32


def make_keys(seeds: Tensor, step: Tensor, draws: int) -> Tensor:
    """Keys `[networks, draws, 2]` of a step's draws, as `noise.keys` makes them for each seed."""
    found = torch.empty(len(seeds), draws, 2, dtype=torch.int32, device=seeds.device)
    _make_keys[(len(seeds), draws)](seeds, step, found, int(Stream.TRAINING))
    return found


def sample(stages: Stages, means: Sequence[Tensor], rhos: Sequence[Tensor], keys: Tensor) -> list[Tensor]:
    """Draws `[networks * draws, n]` of every place."""
    networks, draws = keys.shape[:2]
    found = []
    for place, mean, rho in zip(stages.network.places, means, rhos, strict=True):
        size = mean.shape[1]
        theta = torch.empty(networks * draws, size, dtype=stages.dtype, device=mean.device)
        first, grid = _programs(place.start, size, networks)
        _sample[grid](mean, rho, theta, keys, place.start, size, first, mean.stride(0), draws, _BLOCK)
        found.append(theta)
    return found


def update(
    stages: Stages,
    columns: Sequence[Sequence[Tensor]],
    keys: Tensor,
    priors: Tensor,
    numbers: Tensor,
    batch: int,
    gradients: Sequence[Tensor],
) -> None:
    """Means, rhos and the optimiser's state of every place, in place; `columns` are those, each by place."""
    networks, draws = keys.shape[:2]
    adam = isinstance(stages.rule, AdamRule)
    betas = stages.rule.group["betas"] if adam else (0.0, 0.0)
    mixture = isinstance(stages.family, ScaleMixture)
    for index, (place, gradient) in enumerate(zip(stages.network.places, gradients, strict=True)):
        mean, rho, *rest = (column[index] for column in columns)
        slots = rest if adam else [mean] * 4
        size = mean.shape[1]
        first, grid = _programs(place.start, size, networks)
        _update[grid](
            mean,
            rho,
            *slots,
            gradient,
            keys,
            priors,
            numbers,
            place.start,
            size,
            first,
            mean.stride(0),
            slots[0].stride(0),
            batch,
            priors.shape[1],
            numbers.shape[1],
            *betas,
            stages.rule.group["eps"] if adam else 0.0,
            draws,
            mixture,
            adam,
            _BLOCK,
        )


def _programs(start: int, size: int, networks: int) -> tuple[int, tuple[int, int]]:
    """The first block of 32 elements that a place touches, and the grid of programs over its pairs."""
    first, last = start // 32, -(-(start + size) // 32)
    return first, (triton.cdiv((last - first) * 16, _BLOCK), networks)


@triton.jit
def _mix(v):
    v = (v ^ (v >> 16)) * 0x7FEB352D
    v = (v ^ (v >> 15)) * 0x846CA68B
    return v ^ (v >> 16)


@triton.jit
def _fold(value, word, position: tl.constexpr):
    return _mix((value ^ word) + ((0x9E3779B9 * (position + 1)) & 0xFFFFFFFF))


@triton.jit
def _make_keys(seeds, step, found, stream: tl.constexpr):
    network, draw = tl.program_id(0), tl.program_id(1)
    seed, now = tl.load(seeds + network), tl.load(step)
    for chain in tl.static_range(2):
        value = tl.full([], 0x9E3779B9 if chain == 0 else 0x85EBCA6B, tl.uint32)
        value = _fold(value, (seed & 0xFFFFFFFF).to(tl.uint32), 0)
        value = _fold(value, ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32), 1)
        value = _fold(value, stream, 2)
        value = _fold(value, 0, 3)
        value = _fold(value, (now & 0xFFFFFFFF).to(tl.uint32), 4)
        value = _fold(value, ((now >> 32) & 0xFFFFFFFF).to(tl.uint32), 5)
        value = _fold(value, draw.to(tl.uint32), 6)
        tl.store(found + (network * tl.num_programs(1) + draw) * 2 + chain, value.to(tl.int32, bitcast=True))


@triton.jit
def _two_normals(keys, draw, pairs):
    a = tl.load(keys + 2 * draw).to(tl.uint32, bitcast=True)
    b = tl.load(keys + 2 * draw + 1).to(tl.uint32, bitcast=True)
    h = _mix(_mix(pairs ^ a) + b)
    g = _mix(h ^ 0x5BD1E995)
    unit = tl.minimum(((h >> 8).to(tl.float32) + 0.5) * 5.9604644775390625e-08, 0.999999940395355)
    radius = tl.sqrt(-2.0 * tl.log(unit))
    # As an angle between minus and plus half a turn, where the hardware's sine and cosine are good.
    angle = (g.to(tl.int32, bitcast=True) >> 8).to(tl.float32) * _STEP_OF_ANGLE
    return radius * libdevice.fast_cosf(angle), radius * libdevice.fast_sinf(angle)


@triton.jit
def _softplus(x):
    return tl.maximum(tl.maximum(x, 0.0) + libdevice.log1p(tl.exp(-tl.abs(x))), _TINY)


@triton.jit
def _sample(means, rhos, theta, keys, start, size, first, stride, draws: tl.constexpr, block: tl.constexpr):
    network = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * block + tl.arange(0, block)
    # Elements of a pair are sixteen apart in a block of 32.
    one = (first + pair // 16) * 32 + pair % 16 - start
    two = one + 16
    here, there = (one >= 0) & (one < size), (two >= 0) & (two < size)
    mean_one = tl.load(means + network * stride + one, here, 0.0)
    mean_two = tl.load(means + network * stride + two, there, 0.0)
    width_one = _softplus(tl.load(rhos + network * stride + one, here, 0.0))
    width_two = _softplus(tl.load(rhos + network * stride + two, there, 0.0))
    pairs = (first * 16 + pair).to(tl.uint32)
    for draw in range(draws):
        cosine, sine = _two_normals(keys + network * 2 * draws, draw, pairs)
        row = theta + (network * draws + draw) * size
        tl.store(row + one, (mean_one + width_one * cosine).to(theta.dtype.element_ty), here)
        tl.store(row + two, (mean_two + width_two * sine).to(theta.dtype.element_ty), there)


@triton.jit
def _score(z, decay, difference, odds):
    """The slope of the log density of a mixture at z."""
    share = tl.sigmoid(z * z * difference + odds)
    return 2.0 * z * (share * difference - decay)


@triton.jit
def _moved(
    place, slope, first_moments, second_moments, where, mask, size, correction, beta1, beta2, eps, adam: tl.constexpr
):
    """How far a parameter moves, and Adam's moments, in place."""
    if adam:
        mean = beta1 * tl.load(first_moments + where, mask, 0.0) + (1.0 - beta1) * slope
        square = beta2 * tl.load(second_moments + where, mask, 0.0) + (1.0 - beta2) * slope * slope
        tl.store(first_moments + where, mean, mask)
        tl.store(second_moments + where, square, mask)
        place -= size * mean / (tl.sqrt(square) * correction + eps)
    else:
        place -= size * slope
    return place


@triton.jit
def _update(
    means,
    rhos,
    mean_first,
    mean_second,
    rho_first,
    rho_second,
    gradients,
    keys,
    priors,
    numbers,
    start,
    size,
    first,
    stride,
    slot_stride,
    batch,
    prior_width,
    number_width,
    beta1,
    beta2,
    eps,
    draws: tl.constexpr,
    mixture: tl.constexpr,
    adam: tl.constexpr,
    block: tl.constexpr,
):
    network = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * block + tl.arange(0, block)
    pairs = (first * 16 + pair).to(tl.uint32)
    share = tl.load(numbers + network * number_width) / batch
    rate = tl.load(numbers + network * number_width + 1)
    correction = tl.load(numbers + network * number_width + 2) if adam else 0.0
    centre = tl.load(priors + network * prior_width + prior_width - 1)
    one = (first + pair // 16) * 32 + pair % 16 - start
    two = one + 16
    here, there = (one >= 0) & (one < size), (two >= 0) & (two < size)
    mean_one = tl.load(means + network * stride + one, here, 0.0)
    mean_two = tl.load(means + network * stride + two, there, 0.0)
    rho_one = tl.load(rhos + network * stride + one, here, 0.0)
    rho_two = tl.load(rhos + network * stride + two, there, 0.0)
    width_one, width_two = _softplus(rho_one), _softplus(rho_two)
    slope_one = tl.zeros([block], tl.float32)
    slope_two = tl.zeros([block], tl.float32)
    stretch_one = tl.zeros([block], tl.float32)
    stretch_two = tl.zeros([block], tl.float32)
    if mixture:
        decay = tl.load(priors + network * prior_width + 1)
        difference = tl.load(priors + network * prior_width + 2)
        odds = tl.load(priors + network * prior_width + 3)
    for draw in range(draws):
        cosine, sine = _two_normals(keys + network * 2 * draws, draw, pairs)
        row = gradients + (network * draws + draw) * size
        gradient_one = tl.load(row + one, here, 0.0).to(tl.float32)
        gradient_two = tl.load(row + two, there, 0.0).to(tl.float32)
        if mixture:
            gradient_one -= share * _score(mean_one + width_one * cosine - centre, decay, difference, odds)
            gradient_two -= share * _score(mean_two + width_two * sine - centre, decay, difference, odds)
        slope_one += gradient_one
        slope_two += gradient_two
        stretch_one += gradient_one * cosine
        stretch_two += gradient_two * sine
    slope_one, slope_two = slope_one / draws, slope_two / draws
    stretch_one = stretch_one / draws - share / width_one
    stretch_two = stretch_two / draws - share / width_two
    if not mixture:
        scale = tl.load(priors + network * prior_width)
        precision = share / (scale * scale)
        slope_one += precision * (mean_one - centre)
        slope_two += precision * (mean_two - centre)
        stretch_one += precision * width_one
        stretch_two += precision * width_two
    stretch_one *= tl.sigmoid(rho_one)
    stretch_two *= tl.sigmoid(rho_two)
    own = network * slot_stride
    mean_one = _moved(
        mean_one, slope_one, mean_first, mean_second, own + one, here, rate, correction, beta1, beta2, eps, adam
    )
    mean_two = _moved(
        mean_two, slope_two, mean_first, mean_second, own + two, there, rate, correction, beta1, beta2, eps, adam
    )
    rho_one = _moved(
        rho_one, stretch_one, rho_first, rho_second, own + one, here, rate, correction, beta1, beta2, eps, adam
    )
    rho_two = _moved(
        rho_two, stretch_two, rho_first, rho_second, own + two, there, rate, correction, beta1, beta2, eps, adam
    )
    tl.store(means + network * stride + one, mean_one, here)
    tl.store(means + network * stride + two, mean_two, there)
    tl.store(rhos + network * stride + one, rho_one, here)
    tl.store(rhos + network * stride + two, rho_two, there)
