"""Sets of weights drawn once and kept, so that a repeated request costs only the passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bayesify.methods import Method

# The weights of a chunk of draws, and the activations of its passes, have to fit in memory.
_DRAW_ELEMENTS = 1 << 24
_PASS_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Chunk:
    """Some draws: tensors by name for a plain chain of layers, otherwise what the method's own passes take."""

    tensors: dict[str, Tensor]
    theta: Tensor | None = None
    dropout: Tensor | None = None
    kept: dict[str, Tensor] | None = None

    @property
    def size(self) -> int:
        """Bytes in memory."""
        held = [*self.tensors.values(), *(self.kept or {}).values()]
        held += [tensor for tensor in (self.theta, self.dropout) if tensor is not None]
        return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}.values())


@dataclass(frozen=True)
class Drawn:
    """A set of draws in chunks, their bytes where they are kept, and the seed they came from."""

    chunks: Callable[[], Iterable[Chunk]]
    size: int
    seed: int


class WeightCache:
    """The sets asked for last, as many as fit in `capacity` bytes, whichever model they belong to."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: OrderedDict[tuple[Any, ...], Drawn] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes held now."""
        return sum(drawn.size for drawn in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def draw(self, method: Method, few: Tensor, draws: int, seed: int, rows: int) -> Drawn:
        """A set of draws, kept if it was asked for before; `few` are prepared inputs, `rows` those of a pass."""
        network = method.network
        if draws * network.size * network.initial.element_size() > self.capacity:
            # Too large to keep: drawn afresh, a chunk at a time, while it is used.
            return Drawn(lambda: _chunks(method, few, draws, seed, rows), 0, seed)
        key = (id(method), draws, seed)
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        chunks = list(_chunks(method, few, draws, seed, rows))
        drawn = Drawn(lambda: chunks, sum(chunk.size for chunk in chunks), seed)
        while self._held and self.size + drawn.size > self.capacity:
            self._held.popitem(last=False)
        self._held[key] = drawn
        return drawn


def _chunks(method: Method, few: Tensor, draws: int, seed: int, rows: int) -> Iterator[Chunk]:
    network = method.network
    chunk = max(1, min(_DRAW_ELEMENTS // network.size, _PASS_ELEMENTS // (network.traced(few).widest * rows)))
    for first in range(0, draws, chunk):
        numbers = range(first, min(first + chunk, draws))
        theta = method.weights(numbers, seed)
        dropout, kept = method.dropout_keys(numbers, seed), method.draw_buffers(numbers, seed)
        stochastic, each = dropout is not None, kept is not None
        plain = method.at_weights and not each
        if plain and network.tier(len(numbers), few, train=False, stochastic=stochastic)[0] == "batched":
            # Laid out once as the products want them, instead of in every pass.
            yield Chunk({name: tensor.contiguous() for name, tensor in network.unflatten(theta).items()})
        else:
            yield Chunk({}, theta, dropout, kept)
