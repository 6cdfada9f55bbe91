"""Random numbers as one pure function of (seed, stream, network, step, draw, element).

There is no generator and no hidden state: the same coordinates give the same number on any device, eager or
compiled, alone or in a batch, so training can be resumed to the bit and an input's answer never depends on its
neighbours. A key folds the first five coordinates into two 32-bit words `(a, b)`; element `e` then gets

    h = mix(mix(pair(e) ^ a) + b)        g = mix(h ^ c)

with `mix` the 32-bit integer hash "lowbias32" (C. Wellons, Hash Prospector) and a pair of normals by Box and Muller,
`sqrt(-2 log u(h)) * (cos, sin)(2 pi u(g))`. Elements are paired sixteen apart inside blocks of 32, which keeps the
function independent of how many elements are asked for and lets a compiler vectorise it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

LANES = 16
_WORD = 0xFFFFFFFF
_SECOND_HASH = 0x5BD1E995
_CHAINS = (0x9E3779B9, 0x85EBCA6B)
# Pairs made at once without a compiler: few enough for the cache, many enough that Python does not count.
_BLOCK_PAIRS = 1 << 16
_WORTH_BLOCKS = 1 << 17
# sin(x) / x to 5e-9 and cos(x) to 5e-8 between minus and plus pi / 2, by powers of x^2 (Chebyshev interpolation).
_SINE = (
    0.9999999956988092,
    -0.16666657947846047,
    0.008333050170672233,
    -0.00019809017408702463,
    2.6051076353789038e-06,
)
_COSINE = (0.9999999530275124, -0.4999990477779215, 0.041663573160188594, -0.001385362953617643, 2.3152416659992903e-05)
_mixing: Callable[[Tensor], Tensor] | None = None


class Stream(enum.IntEnum):
    """What a number is for; different streams never share noise."""

    INITIAL = 1
    TRAINING = 2
    PREDICTION = 3
    DROPOUT = 4
    LOGITS = 5
    SHUFFLE = 6
    SPLIT = 7
    LOCAL = 8
    TARGETS = 10
    SGMCMC = 11
    HMC = 12
    SWAG = 13


def key(seed: int, stream: int, network: int = 0, step: int = 0, draw: int = 0) -> tuple[int, int]:
    """The two 32-bit words, as signed integers, that stand for these coordinates."""
    words = (
        seed & _WORD,
        (seed >> 32) & _WORD,
        stream,
        network & _WORD,
        step & _WORD,
        (step >> 32) & _WORD,
        draw & _WORD,
    )
    folded = []
    for value in _CHAINS:
        for position, word in enumerate(words):
            value = _mix_integer((value ^ word & _WORD) + _turn(position) & _WORD)  # noqa: PLW2901 -- the chain goes on
        folded.append(_signed(value))
    return folded[0], folded[1]


def keys(
    seed: int | Tensor,
    stream: int,
    network: int | Tensor = 0,
    step: int | Tensor = 0,
    draws: Iterable[int] = (0,),
    device: torch.device | str | None = None,
) -> Tensor:
    """One key per draw, `[draws, 2]` int32, ready for the functions below (and for vmap, compile and CUDA graphs).

    A seed or step (int64) or network (int32) that is a tensor without axes is read where the key is made, so that a
    compiled step serves all steps, and a batched one all seeds.
    """
    if not isinstance(seed, Tensor) and not isinstance(step, Tensor) and not isinstance(network, Tensor):
        rows = [key(seed, stream, network, step, draw) for draw in draws]
        return torch.tensor(rows, dtype=torch.int32, device=device).reshape(-1, 2)
    place = seed.device if isinstance(seed, Tensor) else step.device if isinstance(step, Tensor) else device
    draw = torch.tensor([_signed(draw & _WORD) for draw in draws], dtype=torch.int32, device=place)
    words = (*_halves(seed), stream, network, *_halves(step), draw.unsqueeze(-1))
    folded = torch.tensor([_signed(chain) for chain in _CHAINS], dtype=torch.int32, device=place)
    for position, word in enumerate(words):
        known = _signed(word & _WORD) if isinstance(word, int) else word
        folded = _mix((folded ^ known) + _turn(position))
    return folded


def fold(keys: Tensor, word: int) -> Tensor:
    """Keys of a sub-stream, one for each `word`: a layer's or a dropout site's own noise inside a draw."""
    offset = torch.tensor(_mix_pair(word), dtype=torch.int32, device=keys.device)
    return _mix(_mix(keys ^ offset) + offset.flip(-1))


def normal(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Standard normals for elements `start ... start + size - 1` of each key: `[..., 2]` -> `[..., size]`, float32."""
    first, last = start // (2 * LANES), -(-(start + size) // (2 * LANES))
    skipped = start - first * 2 * LANES
    if size >= _WORTH_BLOCKS and _is_eager_on_cpu(keys):
        return _normal_in_blocks(keys, first, last)[..., skipped : skipped + size]
    # In blocks from the start: a compiler then makes hashes, radius and angle in one loop.
    pairs = torch.arange(first * LANES, last * LANES, dtype=torch.int32, device=keys.device).view(-1, LANES)
    h, g = _two_hashes(keys.unsqueeze(-2), pairs)
    radius = torch.sqrt(-2.0 * torch.log(_unit(h)))
    whole = torch.stack(_on_circle(radius, g), -2).view(*keys.shape[:-1], -1)
    skipped = start - first * 2 * LANES
    return whole[..., skipped : skipped + size]


def normal_by_element(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """The numbers of `normal`, to rounding, each made on its own: a GPU has arithmetic to spare."""
    element = torch.arange(start, start + size, dtype=torch.int32, device=keys.device)
    h, g = _two_hashes(keys, (element >> 5) * LANES + (element & (LANES - 1)))
    # The second of a pair is a quarter turn behind the first, in whole steps of 2^-24 of a turn: sin x = cos(x - pi/2).
    turn = ((g >> 8) & 0xFFFFFF) - ((element >> 4) & 1) * (1 << 22)
    return torch.sqrt(-2.0 * torch.log(_unit(h))) * torch.cos(turn.float() * (2 * math.pi / 2**24))


def uniform(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Uniforms strictly inside (0, 1), on a grid of 2^-24: `[..., 2]` -> `[..., size]`, float32."""
    return _unit(bits(keys, size, start))


def signs(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Minus or plus one with equal chance: `[..., 2]` -> `[..., size]`, float32."""
    return ((bits(keys, size, start) >> 31) & 1).float() * 2.0 - 1.0


def bits(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """32 random bits per element, as int32."""
    elements = torch.arange(start, start + size, dtype=torch.int32, device=keys.device)
    return _two_hashes(keys, elements)[0]


def permutation(keys: Tensor, size: int) -> Tensor:
    """A uniformly random order of `size` things for each key, `[..., size]` int64."""
    elements = torch.arange(size, dtype=torch.int32, device=keys.device)
    h, g = _two_hashes(keys, elements)
    # 64 random bits: a tie, which a stable sort would break by position, has a chance of size^2 / 2^65.
    return torch.argsort((h.long() << 32) | (g.long() & _WORD), dim=-1, stable=True)


def mix(v: Tensor) -> Tensor:
    """The hash of int32 numbers, one by one."""
    # int32 shifts are arithmetic in torch; the masks make them logical.
    v = (v ^ ((v >> 16) & 0xFFFF)) * 0x7FEB352D
    v = (v ^ ((v >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return v ^ ((v >> 16) & 0xFFFF)


def polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """The sum of the coefficients times powers of x, from the zeroth."""
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


@contextmanager
def mixing(operation: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, hashes are made by this operation, which gives the same numbers: a compiler may prefer it."""
    global _mixing
    _mixing = operation
    try:
        yield
    finally:
        _mixing = None  # also where two threads trace at once: the numbers are the same either way


def _is_eager_on_cpu(keys: Tensor) -> bool:
    """Whether this is plain arithmetic, that no compiler, tracer or vmap looks at."""
    return (
        keys.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and type(keys) is Tensor
        and _get_current_dispatch_mode() is None
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _normal_in_blocks(keys: Tensor, first: int, last: int) -> Tensor:
    """The same operations on the same numbers as `normal`, in place and block by block: half the time, uncompiled."""
    whole = torch.empty((*keys.shape[:-1], (last - first) * 2 * LANES))
    per_block = min(_BLOCK_PAIRS // LANES, last - first)
    counters = torch.arange(per_block * LANES, dtype=torch.int32).view(-1, LANES)
    integers, spare = torch.empty_like(counters), torch.empty_like(counters)
    radii, angles = (torch.empty_like(counters, dtype=torch.float32) for _ in range(2))
    for (a, b), row in zip(keys.reshape(-1, 2).tolist(), whole.view(-1, last - first, 2, LANES), strict=True):
        for start in range(0, last - first, per_block):
            into = row[start : start + per_block]
            pairs, h, t, radius, angle = (part[: len(into)] for part in (counters, integers, spare, radii, angles))
            torch.add(pairs, (first + start) * LANES, out=h).bitwise_xor_(a)
            _mix_in_place(_mix_in_place(h, t).add_(b), t)
            radius.copy_(torch.bitwise_right_shift(h, 8, out=t).bitwise_and_(0xFFFFFF))
            radius.add_(0.5).mul_(2**-24).clamp_(max=1.0 - 2**-24).log_().mul_(-2.0).sqrt_()
            _mix_in_place(h.bitwise_xor_(_SECOND_HASH), t)
            angle.copy_(torch.bitwise_right_shift(h, 8, out=t).bitwise_and_(0xFFFFFF)).mul_(2 * math.pi / 2**24)
            torch.mul(torch.sin(angle), radius, out=into[:, 1])
            torch.mul(angle.cos_(), radius, out=into[:, 0])
    return whole


def _mix_in_place(v: Tensor, spare: Tensor) -> Tensor:
    v.bitwise_xor_(torch.bitwise_right_shift(v, 16, out=spare).bitwise_and_(0xFFFF)).mul_(0x7FEB352D)
    v.bitwise_xor_(torch.bitwise_right_shift(v, 15, out=spare).bitwise_and_(0x1FFFF)).mul_(0x846CA68B - (1 << 32))
    return v.bitwise_xor_(torch.bitwise_right_shift(v, 16, out=spare).bitwise_and_(0xFFFF))


def _halves(number: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
    if isinstance(number, Tensor):
        # int64 to int32 keeps the low 32 bits.
        return (number & _WORD).to(torch.int32), ((number >> 32) & _WORD).to(torch.int32)
    return number & _WORD, (number >> 32) & _WORD


def _turn(position: int) -> int:
    return _signed(0x9E3779B9 * (position + 1) & _WORD)


def _two_hashes(keys: Tensor, counters: Tensor) -> tuple[Tensor, Tensor]:
    h = _mix(_mix(counters ^ keys[..., :1]) + keys[..., 1:])
    return h, _mix(h ^ _SECOND_HASH)


def _on_circle(radius: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The two coordinates of a point at an angle of 24 bits of a turn."""
    if _mixing is None:
        angle = ((g >> 8) & 0xFFFFFF).float() * (2 * math.pi / 2**24)
        return radius * torch.cos(angle), radius * torch.sin(angle)
    # For a compiler: from half the angle, between minus and plus a quarter of a turn, where short polynomials do.
    half = (g >> 8).float() * (math.pi / 2**24)
    square = half * half
    sine = half * polynomial(_SINE, square)
    across = 2.0 * radius * sine
    return radius - across * sine, across * polynomial(_COSINE, square)


def _unit(h: Tensor) -> Tensor:
    # The top value is 1 - 2^-25, which float32 rounds up to one: clamp, so that the interval stays open.
    return ((((h >> 8) & 0xFFFFFF).float() + 0.5) * 2**-24).clamp(max=1.0 - 2**-24)


def _mix(v: Tensor) -> Tensor:
    return (_mixing or mix)(v)


def _mix_pair(word: int) -> tuple[int, int]:
    first, second = (_mix_integer((word + 1) * chain & _WORD) for chain in _CHAINS)
    return _signed(first), _signed(second)


def _signed(v: int) -> int:
    return v - (1 << 32) if v >= 1 << 31 else v


def _mix_integer(v: int) -> int:
    v = (v ^ (v >> 16)) * 0x7FEB352D & _WORD
    v = (v ^ (v >> 15)) * 0x846CA68B & _WORD
    return v ^ (v >> 16)
