"""Triton kernels for the noise, the draws and the updates of stacked networks; `kernel_launches.py` launches them.

Compiled stages are bound by arithmetic: the noise of each number is a hash, a logarithm and a cosine. These kernels use
both numbers that the Box-Muller transform makes of one hash, take sine and cosine from the hardware (their error, 4e-7,
is below the precision of the draws), and compute the noise of every draw again in registers. Where draws and gradients
are in bfloat16, logarithm, root, exponential and reciprocal come from the hardware too: their errors (2e-7 for the
logarithm) are far below the rounding of the draws.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from bayesify.noise import Stream
from bayesify.noise_kernel import mix

_STEP_OF_ANGLE = tl.constexpr(2 * math.pi / 2**24)
_MINUS_TWO_LN_TWO = tl.constexpr(-2 * math.log(2))
_LOG2_E = tl.constexpr(math.log2(math.e))
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_STREAM = tl.constexpr(int(Stream.TRAINING))


@triton.jit
def make_keys(seeds, step, found, networks: tl.constexpr, draws: tl.constexpr, block: tl.constexpr) -> None:
    _write_keys(seeds, tl.load(step), found, networks, draws, block)


@triton.jit
def fetch(
    x,
    y,
    order,
    table,
    seeds,
    first_step,
    counter,
    x_found,
    y_found,
    numbers,
    keys,
    batch_size,
    examples,
    batches,
    x_width,
    y_width,
    size,
    networks: tl.constexpr,
    number_width: tl.constexpr,
    draws: tl.constexpr,
    block: tl.constexpr,
) -> None:
    row, part = tl.program_id(0), tl.program_id(1)
    batch = tl.load(counter)
    if row < size:
        # A trial step near the end of the data must not read beyond it.
        example = tl.load(order + tl.minimum(batch * batch_size + row, examples - 1))
        _copy(x + example * x_width, x_found + row.to(tl.int64) * x_width, x_width, part * block, block)
        _copy(y + example * y_width, y_found + row.to(tl.int64) * y_width, y_width, part * block, block)
    elif part == 0:
        _write_keys(seeds, tl.load(first_step) + batch, keys, networks, draws, block)
        table += tl.minimum(batch, batches - 1) * (networks * number_width)
        for begin in range(0, networks * number_width, block):
            _copy(table, numbers, networks * number_width, begin, block)


@triton.jit
def sample(
    means,
    rhos,
    theta,
    keys,
    stride: tl.constexpr,
    starts: tl.constexpr,
    programs: tl.constexpr,
    draws: tl.constexpr,
    block: tl.constexpr,
) -> None:
    network = tl.program_id(1).to(tl.int64)
    theta, start, size, pair = _own(theta, starts, programs, block)
    one, two, here, there = _elements(pair, start, size)
    means += network * stride
    rhos += network * stride
    mean_one, mean_two = tl.load(means + one, here, 0.0), tl.load(means + two, there, 0.0)
    width_one, width_two = _softplus(tl.load(rhos + one, here, 0.0)), _softplus(tl.load(rhos + two, there, 0.0))
    pair = _laid_out_as(pair, mean_one)
    coarse: tl.constexpr = theta.dtype.element_ty == tl.bfloat16
    for draw in range(draws):
        cosine, sine = _two_normals(keys + network * 2 * draws, draw, pair, coarse)
        row = theta + (network * draws + draw) * size
        tl.store(row + (one - start), (mean_one + width_one * cosine).to(theta.dtype.element_ty), here)
        tl.store(row + (two - start), (mean_two + width_two * sine).to(theta.dtype.element_ty), there)


@triton.jit
def update(
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
    nll,
    total,
    counter,
    batch,
    prior_width,
    number_width,
    beta1,
    beta2,
    eps,
    stride: tl.constexpr,
    starts: tl.constexpr,
    programs: tl.constexpr,
    draws: tl.constexpr,
    mixture: tl.constexpr,
    adam: tl.constexpr,
    counted: tl.constexpr,
    block: tl.constexpr,
) -> None:
    network = tl.program_id(1).to(tl.int64)
    gradients, start, size, pair = _own(gradients, starts, programs, block)
    one, two, here, there = _elements(pair, start, size)
    at_one, at_two = network * stride + one, network * stride + two
    mean_one, mean_two = tl.load(means + at_one, here, 0.0), tl.load(means + at_two, there, 0.0)
    rho_one, rho_two = tl.load(rhos + at_one, here, 0.0), tl.load(rhos + at_two, there, 0.0)
    width_one, width_two = _softplus(rho_one), _softplus(rho_two)
    share = tl.load(numbers + network * number_width) / batch
    rate = tl.load(numbers + network * number_width + 1)
    prior = priors + network * prior_width
    centre = tl.load(prior + prior_width - 1)
    slope_one = tl.zeros([block], tl.float32)
    slope_two = tl.zeros([block], tl.float32)
    stretch_one = tl.zeros([block], tl.float32)
    stretch_two = tl.zeros([block], tl.float32)
    pair = _laid_out_as(pair, mean_one)
    coarse: tl.constexpr = gradients.dtype.element_ty == tl.bfloat16
    if mixture:
        difference, odds = tl.load(prior + 2), tl.load(prior + 3)
        # The slope of minus the log density at z is z * (pull + push * (the narrow component's share at z)).
        pull, push = 2.0 * share * tl.load(prior + 1), -2.0 * share * difference
        from_centre_one, from_centre_two = mean_one - centre, mean_two - centre
    for draw in range(draws):
        cosine, sine = _two_normals(keys + network * 2 * draws, draw, pair, coarse)
        row = gradients + (network * draws + draw) * size
        gradient_one = tl.load(row + (one - start), here, 0.0).to(tl.float32)
        gradient_two = tl.load(row + (two - start), there, 0.0).to(tl.float32)
        if mixture:
            z_one, z_two = from_centre_one + width_one * cosine, from_centre_two + width_two * sine
            gradient_one += z_one * (pull + push * _sigmoid(z_one * z_one * difference + odds, coarse))
            gradient_two += z_two * (pull + push * _sigmoid(z_two * z_two * difference + odds, coarse))
        slope_one += gradient_one
        slope_two += gradient_two
        stretch_one += gradient_one * cosine
        stretch_two += gradient_two * sine
    slope_one, slope_two = slope_one / draws, slope_two / draws
    stretch_one = stretch_one / draws - share / width_one
    stretch_two = stretch_two / draws - share / width_two
    if not mixture:
        scale = tl.load(prior)
        precision = share / (scale * scale)
        slope_one += precision * (mean_one - centre)
        slope_two += precision * (mean_two - centre)
        stretch_one += precision * width_one
        stretch_two += precision * width_two
    stretch_one *= tl.sigmoid(rho_one)
    stretch_two *= tl.sigmoid(rho_two)
    if adam:
        # All reads come before all writes, so that no read waits for a write.
        correction = tl.load(numbers + network * number_width + 2)
        slope_one, square_one = _moments(mean_first, mean_second, at_one, here, slope_one, beta1, beta2)
        slope_two, square_two = _moments(mean_first, mean_second, at_two, there, slope_two, beta1, beta2)
        stretch_one, turn_one = _moments(rho_first, rho_second, at_one, here, stretch_one, beta1, beta2)
        stretch_two, turn_two = _moments(rho_first, rho_second, at_two, there, stretch_two, beta1, beta2)
        tl.store(mean_first + at_one, slope_one, here)
        tl.store(mean_first + at_two, slope_two, there)
        tl.store(mean_second + at_one, square_one, here)
        tl.store(mean_second + at_two, square_two, there)
        tl.store(rho_first + at_one, stretch_one, here)
        tl.store(rho_first + at_two, stretch_two, there)
        tl.store(rho_second + at_one, turn_one, here)
        tl.store(rho_second + at_two, turn_two, there)
        slope_one /= tl.sqrt(square_one) * correction + eps
        slope_two /= tl.sqrt(square_two) * correction + eps
        stretch_one /= tl.sqrt(turn_one) * correction + eps
        stretch_two /= tl.sqrt(turn_two) * correction + eps
    tl.store(means + at_one, mean_one - rate * slope_one, here)
    tl.store(means + at_two, mean_two - rate * slope_two, there)
    tl.store(rhos + at_one, rho_one - rate * stretch_one, here)
    tl.store(rhos + at_two, rho_two - rate * stretch_two, there)
    if counted and tl.program_id(0) == 0:
        # No later part of this step reads the counter.
        tl.store(total + network, tl.load(total + network) + tl.load(nll + network).to(tl.float64) * batch)
        if network == 0:
            tl.store(counter, tl.load(counter) + 1)


@triton.jit
def _write_keys(seeds, now, found, networks: tl.constexpr, draws: tl.constexpr, block: tl.constexpr):
    for begin in range(0, networks * draws, block):
        index = begin + tl.arange(0, block)
        own = index < networks * draws
        seed = tl.load(seeds + index // draws, own, 0)
        for chain in tl.static_range(2):
            value = tl.full([block], 0x9E3779B9 if chain == 0 else 0x85EBCA6B, tl.uint32)
            value = _fold(value, (seed & 0xFFFFFFFF).to(tl.uint32), 0)
            value = _fold(value, ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32), 1)
            value = _fold(value, _STREAM, 2)
            value = _fold(value, 0, 3)
            value = _fold(value, (now & 0xFFFFFFFF).to(tl.uint32), 4)
            value = _fold(value, ((now >> 32) & 0xFFFFFFFF).to(tl.uint32), 5)
            value = _fold(value, (index % draws).to(tl.uint32), 6)
            tl.store(found + 2 * index + chain, value.to(tl.int32, bitcast=True), own)


@triton.jit
def _fold(value, word, position: tl.constexpr):
    return mix((value ^ word) + ((0x9E3779B9 * (position + 1)) & 0xFFFFFFFF))


@triton.jit
def _copy(origin, found, width, first, block: tl.constexpr):
    column = first + tl.arange(0, block)
    tl.store(found + column, tl.load(origin + column, column < width).to(found.dtype.element_ty), column < width)


@triton.jit
def _own(tensors, starts: tl.constexpr, programs: tl.constexpr, block: tl.constexpr):
    """The tensor that this program works on, its start and size, and the program's pairs of elements."""
    program = tl.program_id(0)
    tensor, start, size, first = tensors[0], starts[0], starts[1] - starts[0], 0
    for index in tl.static_range(1, len(starts) - 1):
        here = program >= programs[index]
        tensor = tl.where(here, tensors[index], tensor)
        start = tl.where(here, starts[index], start)
        size = tl.where(here, starts[index + 1] - starts[index], size)
        first = tl.where(here, programs[index], first)
    pair = start // 32 * 16 + (program - first) * block + tl.arange(0, block)
    return tensor, start, size, pair


@triton.jit
def _elements(pair, start, size):
    """The two elements of each pair, at distance 16 in a block of 32, and whether they lie in the tensor."""
    one = pair // 16 * 32 + pair % 16
    two = one + 16
    return one, two, (one >= start) & (one < start + size), (two >= start) & (two < start + size)


@triton.jit
def _laid_out_as(pair, numbers):
    """The pairs, in the threads that hold these numbers.

    Triton would otherwise distribute them differently, and the noise of every draw would move between threads.
    """
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,f", [pair, numbers], tl.int32, is_pure=True, pack=1)


@triton.jit
def _hardware(instruction: tl.constexpr, x):
    return tl.inline_asm_elementwise(instruction + " $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _two_normals(keys, draw, pair, coarse: tl.constexpr):
    a = tl.load(keys + 2 * draw).to(tl.uint32, bitcast=True)
    b = tl.load(keys + 2 * draw + 1).to(tl.uint32, bitcast=True)
    h = mix(mix(pair.to(tl.uint32) ^ a) + b)
    g = mix(h ^ 0x5BD1E995)
    unit = tl.minimum((h >> 8).to(tl.float32) * 2**-24 + 2**-25, 1 - 2**-24)
    if coarse:
        # Near one a rounded logarithm may have either sign.
        radius = _hardware("sqrt.approx.ftz.f32", tl.abs(_MINUS_TWO_LN_TWO * _hardware("lg2.approx.ftz.f32", unit)))
    else:
        radius = tl.sqrt(-2.0 * tl.log(unit))
    # As an angle between minus and plus half a turn, where the hardware's sine and cosine are good.
    angle = (g.to(tl.int32, bitcast=True) >> 8).to(tl.float32) * _STEP_OF_ANGLE
    return radius * libdevice.fast_cosf(angle), radius * libdevice.fast_sinf(angle)


@triton.jit
def _softplus(x):
    return tl.maximum(tl.maximum(x, 0.0) + libdevice.log1p(tl.exp(-tl.abs(x))), _TINY)


@triton.jit
def _sigmoid(x, coarse: tl.constexpr):
    if coarse:
        found = _hardware("rcp.approx.ftz.f32", 1.0 + _hardware("ex2.approx.ftz.f32", -_LOG2_E * x))
    else:
        found = tl.sigmoid(x)
    return found


@triton.jit
def _moments(first_moments, second_moments, where, mask, slope, beta1, beta2):
    mean = beta1 * tl.load(first_moments + where, mask, 0.0) + (1.0 - beta1) * slope
    square = beta2 * tl.load(second_moments + where, mask, 0.0) + (1.0 - beta2) * slope * slope
    return mean, square
