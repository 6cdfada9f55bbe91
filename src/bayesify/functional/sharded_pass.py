"""A training pass at weights of which each process holds a part: a layer's weights exist while the layer runs.

The buckets of a layer are gathered just before its forward and freed when the next layer needs others. The backward
pass needs weights again: autograd keeps a note of the bucket in their place, and the bucket is gathered a second time.
Weights that other code reads than the layer's own forward (tied weights, projections of attention) are gathered for the
whole pass, and so are all weights of a network that could not be traced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils import _pytree as pytree

from bayesify.distributed.group import Group
from bayesify.distributed.sharding import Shard, weights_of
from bayesify.functional.lower_precision import CAST_LAYERS
from bayesify.functional.recomputing import WithForward

if TYPE_CHECKING:
    from bayesify.functional.layout import Place
    from bayesify.functional.network import Network

# Layers are gathered together until they have this many weights: small messages cost more than their bytes.
BUCKET_WEIGHTS = 1 << 20


def make_shard(network: Network, group: Group) -> Shard:
    """The part of a network's weights that falls to this process.

    Args:
        network: the network; it was traced, or all its weights are gathered for a whole pass.
        group: the processes.

    Returns:
        The part.

    """
    ranges: list[tuple[int, int]] = []
    kinds: list[tuple[bool, bool]] = []
    before = ""
    for place in network.places:
        kind, owner = (place.random, _lazy(network, place)), _owner(place)
        # The tensors of a layer stay together, so that it gathers once.
        full = bool(ranges) and ranges[-1][1] - ranges[-1][0] >= BUCKET_WEIGHTS and owner != before
        if not ranges or full or kinds[-1] != kind:
            ranges.append((place.start, place.stop))
            kinds.append(kind)
        else:
            ranges[-1] = ranges[-1][0], place.stop
        before = owner
    return Shard(group, ranges, network.random_size)


def sharded_outputs(
    network: Network,
    shard: Shard,
    rows: Sequence[Tensor],
    x: Any,
    *,
    dropout: Tensor | None,
    keys: Tensor | None,
    each: bool = False,
    kept: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs `[draws, batch, ...]` of training passes, and each draw's buffers.

    Args:
        network: the network.
        shard: the part of this process.
        rows: for each draw the drawn weights of this process `[1, n]`; with `keys` its means and widths `[2, n]`.
        x: a batch of inputs.
        dropout: keys `[draws, 2]` of the dropout masks; None switches dropout off.
        keys: of the noise of own draws, `[draws, 2]`.
        each: whether `x` and `kept` have a batch and buffers for each draw.
        kept: buffers by name; None takes those of the network.

    Returns:
        As `Network.outputs`.

    """
    results = []
    for draw, part in enumerate(rows):
        gathered = _Gathered(network, shard, part, None if keys is None else keys[draw])
        mask = None if dropout is None else dropout[draw]
        with gathered.noted():
            tensors = gathered.whole_pass()
            inputs, buffers = (_row(x, draw), _row(kept, draw)) if each else (x, kept)
            results.append(
                network.call(tensors, inputs, train=True, dropout=mask, kept=buffers, around=gathered.placed())
            )
    after = {name: torch.stack([left[name] for _, left in results]) for name in results[0][1]}
    return torch.stack([output for output, _ in results]), after


def _row(tree: Any, number: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor[number], tree)


@dataclass(frozen=True)
class _Note:
    """Where a tensor that autograd would keep is found in a gathered bucket."""

    bucket: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Gathered:
    """The weights of one draw, gathered bucket by bucket."""

    def __init__(self, network: Network, shard: Shard, rows: Tensor, key: Tensor | None) -> None:
        self.network, self.shard, self.rows, self.key = network, shard, rows, key
        self.live: dict[int, Tensor] = {}
        self.cast: dict[int, Tensor] = {}
        self.users: Counter[int] = Counter()
        self.again: tuple[int, torch.dtype, Tensor] | None = None
        self.layers: dict[str, list[tuple[Place, int]]] = {}
        self.always: list[tuple[Place, int]] = []
        starts = [bucket.start for bucket in shard.buckets]
        for place in network.places:
            number = next(n for n in reversed(range(len(starts))) if starts[n] <= place.start)
            where = self.layers.setdefault(_owner(place), []) if _lazy(network, place) else self.always
            where.append((place, number))

    def whole_pass(self) -> dict[str, Tensor]:
        """The tensors that stay for the whole pass, by name."""
        return self._use(self.always)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Inside this context each layer of the template gathers its weights when it runs."""
        layers = [(self.network.template.get_submodule(name), places) for name, places in self.layers.items()]
        for layer, places in layers:
            layer.__dict__["forward"] = _Placed(self, layer, places)
        try:
            yield
        finally:
            for layer, _ in layers:
                del layer.__dict__["forward"]
            self.live.clear()
            self.cast.clear()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Inside this context autograd keeps notes in the place of gathered weights."""
        with saved_tensors_hooks(self._note, self._found):
            yield

    def run(self, layer: nn.Module, forward: Any, places: list[tuple[Place, int]], *given: Any, **named: Any) -> Any:
        """The forward of a layer with its weights in place."""
        owner = _owner(places[0][0])
        prefix = f"{owner}." if owner else ""
        tensors = {f"module.{name.removeprefix(prefix)}": tensor for name, tensor in self._use(places).items()}
        try:
            return functional_call(WithForward(layer, forward), tensors, given, named)
        finally:
            for _, number in places:
                self.users[number] -= 1

    def _use(self, places: list[tuple[Place, int]]) -> dict[str, Tensor]:
        for _, number in places:
            self.users[number] += 1
        for number in dict.fromkeys(number for _, number in places):
            if number not in self.live:
                for other in [other for other in self.live if not self.users[other]]:
                    del self.live[other]
                    self.cast.pop(other, None)
                self.live[number] = self.shard.drawn(self.rows, number, self.key)
        return {place.name: self._tensor(place, number) for place, number in places}

    def _tensor(self, place: Place, number: int) -> Tensor:
        first = place.start - self.shard.buckets[number].start
        weights = self.live[number]
        if self._is_cast(place):
            if number not in self.cast:
                self.cast[number] = weights.to(torch.bfloat16)
            return self.cast[number][first : first + place.shape.numel()].view(place.shape)
        tensor = weights[first : first + place.shape.numel()].view(place.shape).to(place.dtype)
        return self.network.aligned(place.name, tensor)

    def _is_cast(self, place: Place) -> bool:
        """Whether autocast would cast the tensor and autograd would keep its cast: it is cast here, and noted."""
        if self.network.training_precision != "bfloat16" or place.dtype != torch.float32 or len(place.shape) < 2:
            return False
        return type(self.network.template.get_submodule(_owner(place))) in CAST_LAYERS

    def _note(self, kept: Tensor) -> Tensor | _Note:
        storage = kept.untyped_storage().data_ptr()
        for number, weights in (*self.live.items(), *self.cast.items()):
            if storage == weights.untyped_storage().data_ptr() and kept.dtype == weights.dtype:
                offset = int(kept.storage_offset()) - int(weights.storage_offset())
                return _Note(number, kept.dtype, kept.shape, kept.stride(), offset)
        return kept

    def _found(self, kept: Tensor | _Note) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        if self.again is None or self.again[:2] != (kept.bucket, kept.dtype):
            self.again = None
            with torch.no_grad():
                shard, number = self.shard, kept.bucket
                piece = self.rows[:, shard.offsets[number] : shard.offsets[number + 1]]
                gathered = weights_of(shard.gather(piece, number), shard.buckets[number], self.key)
                self.again = number, kept.dtype, gathered.to(kept.dtype)
        weights = self.again[2]
        return weights.as_strided(kept.shape, kept.stride, weights.storage_offset() + kept.offset)


class _Placed:
    """The forward of a layer that gathers its weights first."""

    def __init__(self, gathered: _Gathered, layer: nn.Module, places: list[tuple[Place, int]]) -> None:
        self.gathered, self.layer, self.places = gathered, layer, places
        self.forward = layer.__dict__.get("forward") or type(layer).forward.__get__(layer)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.gathered.run(self.layer, self.forward, self.places, *given, **named)


def _lazy(network: Network, place: Place) -> bool:
    """Whether the weights of a place are needed while its own layer runs, and at no other time."""
    trace = network.trace
    if trace is None or trace.problem is not None or trace.changes_weights or trace.keeps_state:
        return False
    use = trace.layers.get(_owner(place))
    return use is not None and use.calls > 0 and not use.read_elsewhere


def _owner(place: Place) -> str:
    return place.name.rpartition(".")[0]
