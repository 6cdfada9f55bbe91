"""A cache of drawn weights, so that a repeated request costs only the passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bayesify.functional.network import Network
from bayesify.methods import Method
from bayesify.methods.prediction import DRAW_ELEMENTS, PASS_ELEMENTS


@dataclass(frozen=True)
class Chunk:
    """Some draws: tensors by name for a plain chain of layers, otherwise the arguments of the method's passes."""

    tensors: dict[str, Tensor]
    theta: Tensor | None = None
    dropout: Tensor | None = None
    kept: dict[str, Tensor] | None = None

    @property
    def size(self) -> int:
        """Bytes in memory."""
        tensors = [*self.tensors.values(), *(self.kept or {}).values()]
        tensors += [tensor for tensor in (self.theta, self.dropout) if tensor is not None]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@dataclass(frozen=True)
class DrawnWeights:
    """A set of draws in chunks, their bytes in the cache (0 where they are not kept), and their seed."""

    chunks: Callable[[], Iterable[Chunk]]
    size: int
    seed: int


class WeightCache:
    """The sets of draws used last, of all models, as many as fit in `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._sets: OrderedDict[tuple[Any, ...], DrawnWeights] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return sum(drawn.size for drawn in self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)

    def draw(self, method: Method, few: Tensor, draws: int, seed: int, rows: int) -> DrawnWeights:
        """A set of draws, from the cache where it is there.

        Args:
            method: the method to draw from.
            few: prepared inputs `[2, ...]`, to trace the network with.
            draws: how many.
            seed: of the draws.
            rows: inputs of a pass.

        """
        network = method.network
        if draws * network.size * network.empty.element_size() > self.capacity:
            # Too large to keep: drawn again, a chunk at a time, while it is used.
            return DrawnWeights(lambda: _chunks(method, few, draws, seed, rows), 0, seed)
        key = (id(method), draws, seed)
        if key in self._sets:
            self._sets.move_to_end(key)
            return self._sets[key]
        chunks = list(_chunks(method, few, draws, seed, rows))
        drawn = DrawnWeights(lambda: chunks, sum(chunk.size for chunk in chunks), seed)
        while self._sets and self.size + drawn.size > self.capacity:
            self._sets.popitem(last=False)
        self._sets[key] = drawn
        return drawn


def _chunks(method: Method, few: Tensor, draws: int, seed: int, rows: int) -> Iterator[Chunk]:
    network = method.network
    chunk = max(1, min(DRAW_ELEMENTS // network.size, PASS_ELEMENTS // (network.traced(few).widest * rows)))
    for first in range(0, draws, chunk):
        numbers = range(first, min(first + chunk, draws))
        theta = method.weights(numbers, seed)
        dropout, kept = method.dropout_keys(numbers, seed), method.draw_buffers(numbers, seed)
        stochastic, each = dropout is not None, kept is not None
        plain = method.at_weights and not each
        if plain and network.tier(len(numbers), few, train=False, stochastic=stochastic)[0] == "batched":
            # Laid out once as the products want them, instead of in every pass.
            yield Chunk({name: tensor.contiguous() for name, tensor in network.unflatten(theta).items()})
        elif plain and not stochastic and network.is_chain and not network.shares_prefix and _is_pure(network, few):
            for row in theta.unbind():
                yield Chunk(network.unflatten(row.clone().unsqueeze(0)))
        else:
            yield Chunk({}, theta, dropout, kept)


def _is_pure(network: Network, few: Tensor) -> bool:
    """Whether a pass can be traced, and leaves its inputs as they are."""
    trace = network.traced(few)
    return trace.problem is None and not trace.changes_inputs
