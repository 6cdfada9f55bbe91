"""Random numbers as one pure function of (seed, stream, network, step, draw, element).

There is no generator and no hidden state: the same coordinates give the same number on any device, eager or
compiled, alone or in a batch. Resumed training is therefore the same to the bit, and the prediction for an input does
not depend on the rest of its batch. A key folds the first five coordinates into two 32-bit words `(a, b)`; element `e`
then gets

    h = mix(mix(pair(e) ^ a) + b)        g = mix(h ^ c)

with `mix` the 32-bit integer hash "lowbias32" (C. Wellons, Hash Prospector). A pair of normals follows by Box and
Muller, `sqrt(-2 log u(h)) * (cos, sin)(2 pi u(g))`. Elements e and e + 16 of each block of 32 are a pair, so that an
element does not depend on the number of elements and a compiler can vectorise the function.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

LANES = 16
_WORD = 0xFFFFFFFF
_SECOND_HASH = 0x5BD1E995
_CHAINS = (0x9E3779B9, 0x85EBCA6B)
# Pairs per block without a compiler: few enough for the cache, many enough to hide the cost of Python.
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
_one_by_one = False
_pieces: Sequence[int] = ()
# (inputs before, inputs in it, inputs of the whole batch) of a part of a batch
_PART: ContextVar[tuple[int, int, int] | None] = ContextVar("part_of_batch", default=None)
# The number of the process whose draws of the weights are its own.
_DRAWING: ContextVar[int] = ContextVar("own_draws", default=0)


class Stream(enum.IntEnum):
    """The purpose of a random number; different streams have independent noise.

    Examples:
        >>> bf.noise.Stream.TRAINING
        <Stream.TRAINING: 2>

    """

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
    AUGMENT = 14
    ANNEALING = 24


# What a training step draws.
_OF_A_STEP = frozenset({Stream.TRAINING, Stream.LOCAL, Stream.DROPOUT, Stream.LOGITS})


def key(seed: int, stream: int, network: int = 0, step: int = 0, draw: int = 0) -> tuple[int, int]:
    """The key of one set of coordinates, as Python integers.

    Args:
        seed: the seed, up to 64 bits.
        stream: what the numbers are for, a `Stream`.
        network: number of the network, where several train together.
        step: number of the training step.
        draw: number of the posterior draw.

    Returns:
        Two 32-bit words as signed integers.

    Examples:
        >>> bf.noise.key(0, bf.noise.Stream.TRAINING) == tuple(bf.noise.keys(0, bf.noise.Stream.TRAINING)[0].tolist())
        True

    """
    # Integers of NumPy overflow where those of Python do not.
    seed, network, step, draw = map(operator.index, (seed, network, step, draw))
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
    """The keys of several draws, as a tensor.

    `seed`, `step` (int64) and `network` (int32) may be tensors without dimensions. Their values are then part of the
    computation: one compiled step serves all steps, and a batched one all seeds.

    Args:
        seed: the seed, up to 64 bits.
        stream: what the numbers are for, a `Stream`.
        network: number of the network, where several train together.
        step: number of the training step.
        draws: numbers of the posterior draws.
        device: where to put the keys, unless `seed` or `step` is a tensor.

    Returns:
        One key per draw, `[draws, 2]` int32.

    Examples:
        Draw 1 has the same noise whichever draws are made with it.

        >>> keys = bf.noise.keys(0, bf.noise.Stream.PREDICTION, draws=range(3))
        >>> alone = bf.noise.keys(0, bf.noise.Stream.PREDICTION, draws=[1])
        >>> torch.equal(bf.noise.normal(keys, 4)[1], bf.noise.normal(alone, 4)[0])
        True

    """
    process = _DRAWING.get()
    if process and stream in _OF_A_STEP:
        draws = list(draws)
        draws = [draw + process * len(draws) for draw in draws]
    if not isinstance(seed, Tensor) and not isinstance(step, Tensor) and not isinstance(network, Tensor):
        rows = torch.tensor([key(seed, stream, network, step, draw) for draw in draws], dtype=torch.int32)
        # From the host's own memory this does not wait for the GPU.
        return rows.reshape(-1, 2).to(rows.device if device is None else device, non_blocking=True)
    place = seed.device if isinstance(seed, Tensor) else step.device if isinstance(step, Tensor) else device
    draw = torch.tensor([_signed(draw & _WORD) for draw in draws], dtype=torch.int32, device=place)
    words = (*_halves(seed), stream, network, *_halves(step), draw.unsqueeze(-1))
    folded = torch.tensor([_signed(chain) for chain in _CHAINS], dtype=torch.int32, device=place)
    for position, word in enumerate(words):
        known = _signed(word & _WORD) if isinstance(word, int) else word
        folded = _mix((folded ^ known) + _turn(position))
    return folded


def fold(keys: Tensor, word: int) -> Tensor:
    """Keys of a sub-stream, such as the noise of one layer or one dropout module within a draw.

    Args:
        keys: keys, `[..., 2]` int32.
        word: number of the sub-stream.

    Returns:
        New keys of the same shape.

    Examples:
        >>> keys = bf.noise.keys(0, bf.noise.Stream.DROPOUT, draws=range(3))
        >>> bf.noise.fold(keys, 1).shape
        torch.Size([3, 2])

    """
    if keys.is_cuda and _is_eager(keys):  # without waiting for the GPU
        offset = torch.tensor(_mix_pair(word), dtype=torch.int32, device="cpu").to(keys.device, non_blocking=True)
    else:
        offset = torch.tensor(_mix_pair(word), dtype=torch.int32, device=keys.device)
    return _mix(_mix(keys ^ offset) + offset.flip(-1))


def normal(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Standard normal numbers, for elements `start ... start + size - 1` of each key.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: number of elements.
        start: number of the first element.

    Returns:
        Normals, `[..., size]` float32.

    Examples:
        >>> keys = bf.noise.keys(0, bf.noise.Stream.TRAINING, draws=range(2))
        >>> numbers = bf.noise.normal(keys, 100_000)
        >>> numbers.shape, round(float(numbers.std()), 2)
        (torch.Size([2, 100000]), 1.0)

    """
    if len(_pieces) > 1 and size == sum(_pieces) and start == 0:
        firsts = [sum(_pieces[:number]) for number in range(len(_pieces))]
        return torch.cat([normal(keys, piece, first) for piece, first in zip(_pieces, firsts, strict=True)], -1)
    if _one_by_one:
        return normal_by_element(keys, size, start)
    first, last = start // (2 * LANES), -(-(start + size) // (2 * LANES))
    skipped = start - first * 2 * LANES
    if size >= _WORTH_BLOCKS and keys.device.type == "cpu" and _is_eager(keys):
        return _normal_in_blocks(keys, first, last)[..., skipped : skipped + size]
    if keys.is_cuda and _is_eager(keys) and (kernel := _kernel()) is not None:
        return kernel(keys, size, start)
    # In blocks from the start, so that a compiler fuses hashes, radius and angle into one loop.
    # Numbers of pairs are taken modulo 2^32: 8.6 billion elements differ.
    large = last * LANES >= 1 << 31
    counters = torch.arange(
        0 if large else first * LANES,
        (last - first) * LANES if large else last * LANES,
        dtype=torch.int32,
        device=keys.device,
    )
    pairs = (counters + _signed(first * LANES & _WORD) if large else counters).view(-1, LANES)
    h, g = two_hashes(keys.unsqueeze(-2), pairs)
    radius = torch.sqrt(-2.0 * torch.log(to_unit_interval(h)))
    whole = torch.stack(_on_circle(radius, g), -2).view(*keys.shape[:-1], -1)
    skipped = start - first * 2 * LANES
    return whole[..., skipped : skipped + size]


def normal_by_element(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """The numbers of `normal`, up to rounding, computed one by one instead of in pairs.

    It does twice the arithmetic, which a GPU does not notice, and needs no reordering of memory.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: number of elements.
        start: number of the first element.

    Returns:
        Normals, `[..., size]` float32.

    Examples:
        >>> keys = bf.noise.keys(0, bf.noise.Stream.TRAINING)
        >>> torch.allclose(bf.noise.normal_by_element(keys, 8), bf.noise.normal(keys, 8), atol=1e-5)
        True

    """
    element = torch.arange(start, start + size, dtype=torch.int32, device=keys.device)
    h, g = two_hashes(keys, (element >> 5) * LANES + (element & (LANES - 1)))
    # The second of a pair is a quarter turn behind the first, sin x = cos(x - pi/2), in units of 2^-24 of a turn.
    turn = ((g >> 8) & 0xFFFFFF) - ((element >> 4) & 1) * (1 << 22)
    return torch.sqrt(-2.0 * torch.log(to_unit_interval(h))) * torch.cos(turn.float() * (2 * math.pi / 2**24))


def uniform(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Uniform numbers strictly between 0 and 1, on a grid of spacing 2^-24.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: number of elements.
        start: number of the first element.

    Returns:
        Uniforms, `[..., size]` float32.

    Examples:
        >>> numbers = bf.noise.uniform(bf.noise.keys(0, bf.noise.Stream.SPLIT), 100_000)
        >>> numbers.shape, round(float(numbers.mean()), 2)
        (torch.Size([1, 100000]), 0.5)

    """
    return to_unit_interval(bits(keys, size, start))


def signs(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """Minus one or plus one, with probability 1/2 each.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: number of elements.
        start: number of the first element.

    Returns:
        Signs, `[..., size]` float32.

    Examples:
        >>> bf.noise.signs(bf.noise.keys(0, bf.noise.Stream.TRAINING), 1000).unique()
        tensor([-1.,  1.])

    """
    return ((bits(keys, size, start) >> 31) & 1).float() * 2.0 - 1.0


def bits(keys: Tensor, size: int, start: int = 0) -> Tensor:
    """32 random bits per element.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: number of elements.
        start: number of the first element.

    Returns:
        Bits, `[..., size]` int32.

    Examples:
        >>> bf.noise.bits(bf.noise.keys(0, bf.noise.Stream.TRAINING), 4).dtype
        torch.int32

    """
    elements = torch.arange(start, start + size, dtype=torch.int32, device=keys.device)
    return two_hashes(keys, elements)[0]


def to_unit_interval(random_bits: Tensor) -> Tensor:
    """The top 24 of 32 random bits as a uniform number strictly between 0 and 1.

    Args:
        random_bits: int32 numbers, of any shape.

    Returns:
        Uniforms on a grid of spacing 2^-24, float32 of the same shape.

    Examples:
        >>> bf.noise.to_unit_interval(torch.tensor([-(2**31)], dtype=torch.int32))
        tensor([0.5000])

    """
    # The largest value is 1 - 2^-25, which float32 rounds to 1: the clamp keeps it below.
    return ((((random_bits >> 8) & 0xFFFFFF).float() + 0.5) * 2**-24).clamp(max=1.0 - 2**-24)


@contextmanager
def part_of_batch(first: int, rows: int, total: int | None = None) -> Iterator[None]:
    """Inside this context a batch is a part of a larger one, and its inputs have the noise that they have there.

    Args:
        first: how many inputs of the larger batch come before this part.
        rows: inputs in this part.
        total: inputs in the larger batch; None is as many as end with this part.

    Yields:
        Nothing.

    Examples:
        >>> key = bf.noise.keys(0, bf.noise.Stream.LOCAL)[0]
        >>> whole = bf.noise.normal(key, 6 * 4).view(6, 4)
        >>> with bf.noise.part_of_batch(first=2, rows=3):
        ...     part = bf.noise.normal(key, 3 * 4, bf.noise.start_of_part(3 * 4)).view(3, 4)
        >>> torch.equal(part, whole[2:5])
        True

    """
    token = _PART.set((first, rows, first + rows if total is None else total))
    try:
        yield
    finally:
        _PART.reset(token)


def same_part() -> Callable[[], AbstractContextManager[None]]:
    """The context of `part_of_batch` that is active now, for another time or thread.

    Returns:
        A function that makes the context.

    Examples:
        >>> with bf.noise.part_of_batch(first=2, rows=3):
        ...     again = bf.noise.same_part()
        >>> with again():
        ...     bf.noise.place_in_batch(3)
        (2, 5)

    """
    part = _PART.get()
    return nullcontext if part is None else partial(part_of_batch, *part)


def place_in_batch(rows: int) -> tuple[int, int]:
    """Where a batch stands: how many inputs come before it, and how many the whole batch has.

    Args:
        rows: inputs in this batch.

    Returns:
        Zero and `rows` outside `part_of_batch`.

    Examples:
        >>> with bf.noise.part_of_batch(first=2, rows=3, total=8):
        ...     bf.noise.place_in_batch(3)
        (2, 8)

    """
    part = _PART.get()
    return (0, rows) if part is None else (part[0], part[2])


def start_of_part(elements: int) -> int:
    """Where the noise of a part of a batch starts, for a tensor of `elements` elements with the batch in front.

    Args:
        elements: in the tensor of this part.

    Returns:
        The number of its first element in the tensor of the whole batch; 0 outside `part_of_batch`.

    Examples:
        >>> bf.noise.start_of_part(12)
        0

    """
    part = _PART.get()
    if part is None or elements % part[1]:
        return 0
    return elements // part[1] * part[0]


def for_inputs(
    draw: Callable[[Tensor, int, int], Tensor],
    keys: Tensor,
    shape: Sequence[int],
    axis: int | None = 0,
    *,
    batch_first: bool = True,
) -> Tensor:
    """Noise of a given shape, in which every input has the noise that it has in the whole batch (`part_of_batch`).

    Args:
        draw: `normal`, `uniform` or `signs`.
        keys: one key, `[2]` int32.
        shape: of the noise.
        axis: the axis of the batch; None where the inputs share the noise.
        batch_first: where that axis merges the batch with another one: whether the batch varies slowest.

    Returns:
        Noise of that shape, float32.

    Examples:
        >>> key = bf.noise.keys(0, bf.noise.Stream.LOCAL)[0]
        >>> whole = bf.noise.for_inputs(bf.noise.normal, key, (5, 6, 4), axis=1)
        >>> with bf.noise.part_of_batch(first=2, rows=3, total=6):
        ...     part = bf.noise.for_inputs(bf.noise.normal, key, (5, 3, 4), axis=1)
        >>> torch.equal(part, whole[:, 2:5])
        True

    """
    part, size = _PART.get(), math.prod(shape)
    if part is None or axis is None or shape[axis] % part[1]:
        return draw(keys, size, 0).view(*shape)
    if batch_first and math.prod(shape[:axis]) == 1:
        return draw(keys, size, start_of_part(size)).view(*shape)
    # The inputs of the part are not next to each other: the noise of the whole batch, and their share of it.
    (first, rows, total), (before, after) = part, (shape[:axis], shape[axis + 1 :])
    each = shape[axis] // rows
    merged = (total, each) if batch_first else (each, total)
    whole = draw(keys, math.prod(before) * total * each * math.prod(after), 0).view(*before, *merged, *after)
    return whole.narrow(axis + (not batch_first), first, rows).reshape(*shape)


@contextmanager
def own_draws(process: int) -> Iterator[None]:
    """Inside this context a step's draws are those of one of several processes, which draw different weights.

    The process with number r of K has draws r * D to r * D + D - 1 of the K * D draws of a step.

    Args:
        process: its number.

    Yields:
        Nothing.

    Examples:
        >>> together = bf.noise.keys(0, bf.noise.Stream.TRAINING, draws=range(4))
        >>> with bf.noise.own_draws(1):
        ...     second = bf.noise.keys(0, bf.noise.Stream.TRAINING, draws=range(2))
        >>> torch.equal(second, together[2:])
        True

    """
    token = _DRAWING.set(process)
    try:
        yield
    finally:
        _DRAWING.reset(token)


def permutation(keys: Tensor, size: int) -> Tensor:
    """A uniformly random order of the numbers 0 to size - 1, one for each key.

    Args:
        keys: keys of the noise, `[..., 2]` int32, from `keys` or `fold`.
        size: how many numbers to order.

    Returns:
        Orders, `[..., size]` int64.

    Examples:
        >>> bf.noise.permutation(bf.noise.keys(0, bf.noise.Stream.SHUFFLE)[0], 5).sort().values
        tensor([0, 1, 2, 3, 4])

    """
    elements = torch.arange(size, dtype=torch.int32, device=keys.device)
    h, g = two_hashes(keys, elements)
    # 64 random bits: the probability of a tie, which a stable sort breaks by position, is size^2 / 2^65.
    return torch.argsort((h.long() << 32) | (g.long() & _WORD), dim=-1, stable=True)


def two_hashes(keys: Tensor, counters: Tensor) -> tuple[Tensor, Tensor]:
    """The two hashes `h = mix(mix(counter ^ a) + b)` and `g = mix(h ^ c)` of each counter.

    Args:
        keys: keys `(a, b)`, `[..., 2]` int32.
        counters: int32 numbers, `[n]`.

    Returns:
        h and g, `[..., n]` int32 each.

    Examples:
        >>> h, g = bf.noise.two_hashes(bf.noise.keys(0, 1), torch.arange(4, dtype=torch.int32))
        >>> h.shape, g.shape
        (torch.Size([1, 4]), torch.Size([1, 4]))

    """
    h = _mix(_mix(counters ^ keys[..., :1]) + keys[..., 1:])
    return h, _mix(h ^ _SECOND_HASH)


def mix(v: Tensor) -> Tensor:
    """The 32-bit hash "lowbias32" of each element.

    Args:
        v: int32 numbers, of any shape.

    Returns:
        Their hashes, int32 of the same shape.

    Examples:
        >>> bf.noise.mix(torch.tensor([0, 1], dtype=torch.int32))
        tensor([         0, 1753845952], dtype=torch.int32)

    """
    # int32 shifts are arithmetic in torch; the masks make them logical.
    v = (v ^ ((v >> 16) & 0xFFFF)) * 0x7FEB352D
    v = (v ^ ((v >> 15) & 0x1FFFF)) * (0x846CA68B - (1 << 32))
    return v ^ ((v >> 16) & 0xFFFF)


def polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """The polynomial `c_0 + c_1 x + c_2 x^2 + ...`, by Horner's rule.

    Args:
        coefficients: c_0, c_1, ..., at least one.
        x: where to evaluate it, of any shape.

    Returns:
        The values, of the shape of x.

    Examples:
        >>> bf.noise.polynomial((1.0, 2.0, 3.0), torch.tensor([0.0, 1.0]))
        tensor([1., 6.])

    """
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


@contextmanager
def mixing(
    operation: Callable[[Tensor], Tensor], *, one_by_one: bool = False, pieces: Sequence[int] = ()
) -> Iterator[None]:
    """Compute hashes by another operation inside a `with` block.

    It is for compilers that need the hash in another form.

    Args:
        operation: a function with the results of `mix`.
        one_by_one: `normal` computes its numbers as `normal_by_element` does.
        pieces: `normal` makes as many numbers as these sizes have together one piece after the other.

    Yields:
        Nothing.

    Examples:
        >>> with bf.noise.mixing(bf.noise.mix):
        ...     bf.noise.bits(bf.noise.keys(0, bf.noise.Stream.TRAINING), 2).shape
        torch.Size([1, 2])

    """
    global _mixing, _one_by_one, _pieces
    _mixing, _one_by_one, _pieces = operation, one_by_one, pieces
    try:
        yield
    finally:
        # Safe where two threads trace at once: the numbers are the same either way.
        _mixing, _one_by_one, _pieces = None, False, ()


@cache
def _kernel() -> Callable[[Tensor, int, int], Tensor] | None:
    """The numbers of `normal` by one kernel on a GPU; None where Triton does not work or makes others."""
    try:
        from bayesify import noise_kernel

        some = torch.tensor([key(1, Stream.TRAINING), key(2, Stream.TRAINING)], dtype=torch.int32)
        made = noise_kernel.normal(some.cuda(), 1000, 7).cpu()
    except Exception:  # noqa: BLE001 -- no Triton, no compiler for it, or a GPU that it does not know
        return None
    return noise_kernel.normal if torch.allclose(made, normal(some, 1000, 7), atol=1e-5) else None


def _is_eager(keys: Tensor) -> bool:
    """Whether this runs as plain arithmetic, without a compiler, tracer or vmap."""
    return (
        not torch.compiler.is_compiling()
        and type(keys) is Tensor
        and _get_current_dispatch_mode() is None
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _normal_in_blocks(keys: Tensor, first: int, last: int) -> Tensor:
    """The operations of `normal` in place and block by block, which halves the time without a compiler."""
    whole = torch.empty((*keys.shape[:-1], (last - first) * 2 * LANES))
    per_block = min(_BLOCK_PAIRS // LANES, last - first)
    counters = torch.arange(per_block * LANES, dtype=torch.int32).view(-1, LANES)
    integers, spare = torch.empty_like(counters), torch.empty_like(counters)
    radii, angles = (torch.empty_like(counters, dtype=torch.float32) for _ in range(2))
    for (a, b), row in zip(keys.reshape(-1, 2).tolist(), whole.view(-1, last - first, 2, LANES), strict=True):
        for start in range(0, last - first, per_block):
            into = row[start : start + per_block]
            pairs, h, t, radius, angle = (buffer[: len(into)] for buffer in (counters, integers, spare, radii, angles))
            torch.add(pairs, _signed((first + start) * LANES & _WORD), out=h).bitwise_xor_(a)
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


def _on_circle(radius: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The two coordinates of a point on a circle; its angle is the top 24 bits of g, in turns of 2^-24."""
    if _mixing is None:
        angle = ((g >> 8) & 0xFFFFFF).float() * (2 * math.pi / 2**24)
        return radius * torch.cos(angle), radius * torch.sin(angle)
    # For a compiler: half the angle lies within a quarter turn of zero, where short polynomials are enough.
    half = (g >> 8).float() * (math.pi / 2**24)
    square = half * half
    sine = half * polynomial(_SINE, square)
    across = 2.0 * radius * sine
    return radius - across * sine, across * polynomial(_COSINE, square)


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
