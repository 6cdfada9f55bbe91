"""Training data as batches: which examples each of them has, for every member and epoch.

x may be any pytree (a tensor, a tuple, a dict) whose leaves share their first axis. Tensors and map-style datasets are
shuffled by keyed noise, so a resumed run sees the same batches. A user's loader keeps its order. `users_data.py` makes
examples of what users have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.functional.inputs import by_name

Batch = tuple[Any, Tensor]
# What is kept of data that is not in memory, for checks after training.
_KEPT, _FEWEST_KEPT, _KEPT_BYTES = 1000, 100, 1 << 25


class Examples(ABC):
    """A data set as the training loop sees it: the number of examples, and the batches of an epoch.

    Attributes:
        n_data: number of examples.
        check: called with the inputs and targets of each batch that is read later; set once the network's outputs are
            known.

    """

    n_data: int
    check: Callable[[Any, Tensor], None] | None = None
    _names: list[str] | None = None  # names of the inputs in the first batch, where they have names
    _kept: KeptRows | None = None

    @abstractmethod
    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        """The batches of an epoch, one for each member, in each member's order.

        Args:
            batch_size: examples in a batch.
            seed: seed of the orders.
            epoch: number of the epoch, counted from zero.
            members: networks that are trained.
            skip: batches to leave out at the start.

        Yields:
            A list of pairs `(x, y)`, one for each member.

        """

    @abstractmethod
    def count_batches(self, batch_size: int) -> int:
        """The number of batches in an epoch.

        Args:
            batch_size: examples in a batch.

        """

    @abstractmethod
    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """All examples once, in the order of the data.

        Args:
            batch_size: examples in a batch.

        Yields:
            Pairs `(x, y)`.

        """

    def first(self) -> Batch:
        """The first two examples, `(x, y)`."""
        return next(self.in_order(2))

    def sample(self, rows: int) -> Batch | None:
        """Some examples spread over the data, for checks after training.

        Data that is not in memory is not read again, which could change its order: these are examples that were seen.

        Args:
            rows: examples at most.

        Returns:
            The pair `(x, y)`, or None where nothing has been read yet.

        """
        return None if self._kept is None else self._kept.rows(rows)

    def to(self, device: torch.device) -> Examples:
        """The data on a device, where it is in memory; otherwise the data as it is.

        Args:
            device: the device.

        """
        return self

    def _checked(self, batch: Batch) -> Batch:
        x, y = batch
        if self.check is not None:
            self.check(x, y)
        if isinstance(x, dict):
            # A compiled step identifies the parts of a batch by their order.
            self._names = self._names or list(x)
            x = by_name(x, self._names)
        self._kept = self._kept or KeptRows()
        self._kept.add(x, y)
        return x, y


class IndexedExamples(Examples):
    """Examples that can be read by number.

    Attributes:
        first_member: the number of the first member, where some members of an ensemble are trained apart.

    """

    first_member: int = 0

    @property
    def device(self) -> torch.device | None:
        """Where the numbers of examples are used; None is the host."""
        return None

    @abstractmethod
    def fetch(self, indices: Tensor) -> Batch:
        """The examples with given numbers.

        Args:
            indices: numbers of the examples, `[batch]`.

        Returns:
            The pair `(x, y)`.

        """

    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        orders = self.orders(seed, epoch, members, self.device)
        for start in range(skip * batch_size, self.n_data, batch_size):
            yield [self.fetch(order[start : start + batch_size]) for order in orders]

    def orders(self, seed: int, epoch: int, members: int, device: torch.device | None = None) -> Tensor:
        """The order of the examples for each member in an epoch.

        Args:
            seed: seed of the orders.
            epoch: number of the epoch, counted from zero.
            members: networks that are trained.
            device: of the result.

        Returns:
            Numbers of the examples, `[members, n]`.

        """
        numbers = range(self.first_member, self.first_member + members)
        keys = [noise.keys(seed, noise.Stream.SHUFFLE, member, epoch, device=device) for member in numbers]
        return noise.permutation(torch.cat(keys), self.n_data)

    def count_batches(self, batch_size: int) -> int:
        return -(-self.n_data // batch_size)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for start in range(0, self.n_data, batch_size):
            yield self.fetch(torch.arange(start, min(start + batch_size, self.n_data)))


class TensorExamples(IndexedExamples):
    """Data in memory as tensors.

    Args:
        x: inputs: a tensor `[n, ...]` or a pytree of such tensors.
        y: targets, `[n, ...]`.
        columns: the names of the columns of a data frame, from which x was made.

    """

    def __init__(self, x: Any, y: Tensor, columns: list[str] | None = None) -> None:
        self.x, self.y, self.n_data, self.columns = x, y, y.shape[0], columns

    @property
    def device(self) -> torch.device:
        """That of the data."""
        return self.y.device

    def fetch(self, indices: Tensor) -> Batch:
        indices = indices.to(self.y.device)
        return take(self.x, indices), self.y[indices]

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for start in range(0, self.n_data, batch_size):
            yield take(self.x, slice(start, start + batch_size)), self.y[start : start + batch_size]

    def sample(self, rows: int) -> Batch | None:
        if rows >= self.n_data:
            return self.x, self.y
        return self.fetch(torch.linspace(0, self.n_data - 1, rows).long())

    def to(self, device: torch.device) -> TensorExamples:
        moved = TensorExamples(to_device(self.x, device), self.y.to(device), self.columns)
        moved.first_member = self.first_member
        return moved


class KeptRows:
    """Some of the examples that a loader gave, evenly spread over all that it gave so far; a few MB at most."""

    def __init__(self) -> None:
        self._pieces: list[Batch] = []
        self._stride, self._seen = 1, 0

    def add(self, x: Any, y: Tensor) -> None:
        """Keep the rows of a batch that fall on the stride.

        Args:
            x: inputs.
            y: targets.

        """
        first, size = -self._seen % self._stride, y.shape[0]
        self._seen += size
        if first >= size or (self._pieces and _layout(x, y) != _layout(*self._pieces[0])):
            return
        every = torch.arange(first, size, self._stride, device=y.device)
        self._pieces.append((take(x, every), y[every]))
        width = sum(leaf[:1].numel() * leaf.element_size() for leaf in pytree.tree_leaves(x))
        capacity = max(_FEWEST_KEPT, min(2 * _KEPT, _KEPT_BYTES // max(1, width)))
        while sum(piece[1].shape[0] for piece in self._pieces) > capacity:
            whole = join(self._pieces)
            self._pieces = [(take(whole[0], slice(None, None, 2)), whole[1][::2])]
            self._stride *= 2

    def rows(self, rows: int) -> Batch:
        """Some of the kept examples.

        Args:
            rows: examples at most.

        Returns:
            The pair `(x, y)`.

        """
        x, y = join(self._pieces)
        return TensorExamples(x, y).sample(rows) or (x, y)


class CountedExamples(Examples):
    """Examples of which only the number is known: those of a training loop of the user's.

    Args:
        n_data: number of examples.

    """

    def __init__(self, n_data: int) -> None:
        self.n_data = n_data

    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        raise TypeError("these examples are in a loop of the user's")

    def count_batches(self, batch_size: int) -> int:
        return -(-self.n_data // batch_size)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        raise TypeError("these examples are in a loop of the user's")


def alike(batches: Sequence[Batch]) -> bool:
    """Whether all batches have examples of the same shape.

    Args:
        batches: pairs `(x, y)`.

    """
    return len({tuple(leaf.shape[1:] for leaf in pytree.tree_leaves(batch)) for batch in batches}) <= 1


def join(batches: Sequence[Batch]) -> Batch:
    """The examples of all batches, one batch after the other.

    Args:
        batches: pairs `(x, y)`.

    Returns:
        One pair.

    Raises:
        ValueError: there are no batches, or they have examples of different shapes.

    """
    if not batches:
        raise ValueError("the data set is empty")
    if not alike(batches):
        raise ValueError("the batches have inputs or targets of different shapes: pad them to one length")
    inputs, targets = zip(*batches, strict=True)
    return pytree.tree_map(lambda *leaves: torch.cat(leaves), *inputs), torch.cat(targets)


def all_targets(examples: Examples) -> Tensor:
    """The targets of all examples; data that is not in memory is read once.

    Args:
        examples: the data.

    Returns:
        Prepared targets, `[n, ...]`; one after the other where batches have different shapes.

    """
    if isinstance(examples, TensorExamples):
        return examples.y
    parts = [y for _, y in examples.in_order(1000)]
    if len({part.shape[1:] for part in parts}) > 1:
        # Batches of different lengths: what is left is a list of labels.
        parts = [part.reshape(-1) for part in parts]
    return torch.cat(parts)


def take(x: Any, rows: Tensor | slice | int) -> Any:
    """Some examples of inputs that may be any pytree.

    Args:
        x: inputs, `[n, ...]` each.
        rows: numbers of the examples, a slice, or one number.

    Returns:
        The same structure with those rows.

    """
    return pytree.tree_map_only(Tensor, lambda t: t[rows], x)


def to_device(x: Any, device: torch.device) -> Any:
    """A pytree of tensors on a device.

    Args:
        x: the tensors.
        device: where to move them.

    Returns:
        The same structure on that device.

    """
    # To a GPU without waiting for it; in the other direction the numbers would not be there yet.
    return pytree.tree_map_only(Tensor, lambda t: t.to(device, non_blocking=device.type == "cuda"), x)


def _layout(x: Any, y: Tensor) -> list[Any]:
    leaves, structure = pytree.tree_flatten((x, y))
    return [structure, *((leaf.shape[1:], leaf.dtype, leaf.device) for leaf in leaves)]
