"""The flat vector of a network's weights, of which each process holds a part.

The vector is cut into buckets, and each bucket into one piece for each process. The part of a process is all its pieces
in order. Means, widths, gradients and moments exist in parts alone (Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory
Optimizations Toward Training Trillion Parameter Models", 2020, arXiv:1910.02054). A pass gathers a bucket of drawn
weights, and the backward pass adds its gradient over the processes and leaves each of them its piece:

    shared draws   w_r = mean_r + width_r * eps_r, gathered to w;         g is added and cut:  g_r
    own draws      mean and width gathered, w = mean + width * eps;       g and g * eps are added and cut

Noise is a function of the place in the vector. Each process computes that of its part, and nothing is sent for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.distributed.group import Group

Range = tuple[int, int]


@dataclass(frozen=True)
class Bucket:
    """A range of the vector that is gathered at once.

    Args:
        start: its first element.
        stop: the element after its last.
        chunk: elements of a process's piece; the pieces of the last processes may be shorter.

    """

    start: int
    stop: int
    chunk: int

    def piece(self, rank: int) -> Range:
        """The range of the vector that a process holds."""
        first = min(self.start + rank * self.chunk, self.stop)
        return first, min(first + self.chunk, self.stop)


class Shard:
    """The part of the vector that this process holds.

    Args:
        group: the processes.
        ranges: the buckets in order, from 0 to the size of the vector; none holds random and other weights.
        random_size: how many weights are random; they come first.

    Attributes:
        pieces: the ranges of the vector that this process holds, one for each bucket; some may be empty.
        size: weights of this process.
        random_size: random weights of this process, which come first in its part.
        weight: the share of this process in the gradient of the batch.

    """

    def __init__(self, group: Group, ranges: Sequence[Range], random_size: int) -> None:
        self.group = group
        self.buckets = [Bucket(start, stop, -(-(stop - start) // group.size)) for start, stop in ranges]
        self.whole_size, self.whole_random = ranges[-1][1], random_size
        self.pieces = [bucket.piece(group.rank) for bucket in self.buckets]
        self.size = sum(stop - start for start, stop in self.pieces)
        self.random_size = sum(stop - start for start, stop in self.ranges("random"))
        self.offsets = [0]
        for start, stop in self.pieces:
            self.offsets.append(self.offsets[-1] + stop - start)
        self.weight = 1.0

    def ranges(self, kind: str) -> list[Range]:
        """The pieces among `all`, the `random` or the `fixed` weights, in the places of a vector of those."""
        first, last = self.limits(kind)
        clipped = [(max(start, first) - first, min(stop, last) - first) for start, stop in self.pieces]
        return [(start, stop) for start, stop in clipped if start < stop]

    def limits(self, kind: str) -> Range:
        """Where a vector of `all`, the `random` or the `fixed` weights begins and ends in the vector of all."""
        random, size = self.whole_random, self.whole_size
        return {"all": (0, size), "random": (0, random), "fixed": (random, size)}[kind]

    def take(self, whole: Tensor, kind: str = "all") -> Tensor:
        """The part of this process, `[..., n]` in new memory, of a vector `[..., P]` of a kind of weights."""
        pieces = [whole[..., start:stop] for start, stop in self.ranges(kind)]
        return torch.cat([whole[..., :0], *pieces], -1)

    def normal(self, keys: Tensor) -> Tensor:
        """The noise of the random weights of this process, `[draws, n]`."""
        pieces = [noise.normal(keys, stop - start, start) for start, stop in self.ranges("random")]
        return torch.cat([torch.zeros(*keys.shape[:-1], 0, device=keys.device), *pieces], -1)

    @torch.no_grad()
    def join(
        self, part: Tensor, kind: str = "all", device: torch.device | str | None = None, *, wanted: bool = True
    ) -> Tensor:
        """The vector `[..., P]` of a kind of weights from the parts of all processes, bucket by bucket.

        Args:
            part: that of this process.
            kind: `all`, `random` or `fixed`.
            device: where to put the vector; None is where the part is.
            wanted: False takes part in the exchange and keeps nothing.

        Returns:
            The same vector in every process; an empty one where it is not wanted.

        """
        first, last = self.limits(kind)
        size = last - first if wanted else 0
        whole = torch.empty(*part.shape[:-1], size, dtype=part.dtype, device=device or part.device)
        at = 0
        for number, bucket in enumerate(self.buckets):
            if not first <= bucket.start < last:
                continue
            start, stop = self.pieces[number]
            piece = part[..., at : at + stop - start]
            gathered = self.gather(piece, number)
            if wanted:
                whole[..., bucket.start - first : bucket.stop - first] = gathered
            at += stop - start
        return whole

    def gather(self, piece: Tensor, number: int) -> Tensor:
        """A bucket `[..., n]` from the pieces of all processes."""
        bucket, rows = self.buckets[number], piece.shape[:-1]
        padded = piece.new_zeros(*rows, bucket.chunk)
        padded[..., : piece.shape[-1]] = piece
        every = self.group.gathered(padded.reshape(-1)).view(self.group.size, *rows, bucket.chunk)
        return every.movedim(0, -2).reshape(*rows, -1)[..., : bucket.stop - bucket.start]

    def add(self, whole: Tensor, number: int) -> Tensor:
        """The piece of this process of the sum over the processes of a bucket `[..., n]`."""
        bucket, rows = self.buckets[number], whole.shape[:-1]
        padded = whole.new_zeros(*rows, self.group.size * bucket.chunk)
        padded[..., : whole.shape[-1]] = whole
        by_process = padded.view(*rows, self.group.size, bucket.chunk).movedim(-2, 0)
        part = self.group.sum_of_part(by_process.reshape(-1)).view(*rows, bucket.chunk)
        start, stop = self.pieces[number]
        return part[..., : stop - start]

    def drawn(self, rows: Tensor, number: int, key: Tensor | None) -> Tensor:
        """The weights of a bucket `[n]`, which can be differentiated by the rows of this process.

        Args:
            rows: of the whole part: the drawn weights `[1, part]`, or means and widths `[2, part]`.
            number: of the bucket.
            key: of the noise of an own draw `[2]`; None for drawn weights.

        Returns:
            The weights, the same in every process unless each draws its own.

        """
        piece = rows[:, self.offsets[number] : self.offsets[number + 1]]
        weights: Tensor = _Drawn.apply(piece, self, number, key)  # type: ignore[no-untyped-call]
        return weights

    def whole(self, part: Tensor, kind: str = "all") -> Tensor:
        """The vector of `all` or of the `random` weights from parts `[n]`, which can be differentiated."""
        last, rows = self.limits(kind)[1], part.unsqueeze(0)
        return torch.cat([self.drawn(rows, n, None) for n, bucket in enumerate(self.buckets) if bucket.start < last])

    def total(self, value: Tensor) -> Tensor:
        """The sum of a number over the processes, without its gradient."""
        summed = value.detach().clone()
        self.group.sum([summed])
        return summed


class _Drawn(torch.autograd.Function):
    """Gathers a bucket in the forward pass, and adds and cuts its gradient in the backward pass; keeps nothing."""

    @staticmethod
    def forward(ctx: Any, piece: Tensor, shard: Shard, number: int, key: Tensor | None) -> Tensor:
        ctx.shard, ctx.number, ctx.key = shard, number, key
        return weights_of(shard.gather(piece, number), shard.buckets[number], key)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        slope = slopes[0] * ctx.shard.weight
        if ctx.key is None:
            rows = slope.unsqueeze(0)
        else:
            rows = torch.stack((slope, slope * _noise(ctx.shard.buckets[ctx.number], ctx.key, slope)))
        return ctx.shard.add(rows, ctx.number), None, None, None


def weights_of(rows: Tensor, bucket: Bucket, key: Tensor | None) -> Tensor:
    """The weights of a gathered bucket: drawn ones as they are; from means and widths with the noise of a key."""
    return rows[0] if key is None else rows[0] + rows[1] * _noise(bucket, key, rows)


def _noise(bucket: Bucket, key: Tensor, like: Tensor) -> Tensor:
    return noise.normal(key, bucket.stop - bucket.start, bucket.start).to(like.dtype)
