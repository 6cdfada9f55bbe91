"""Training data as batches: from tensors, arrays, a Dataset or a DataLoader.

x may be any pytree (a tensor, a tuple, a dict) whose leaves share their first axis. Tensors and map-style datasets are
shuffled by keyed noise, so a resumed run sees the same batches. A user's loader keeps its order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from bayesify import noise
from bayesify.functional.inputs import by_name, count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.likelihoods import Likelihood

Batch = tuple[Any, Tensor]
# What is kept of data that is not in memory, for checks after training.
_KEPT, _FEWEST_KEPT, _KEPT_BYTES = 1000, 100, 1 << 25
_ADVICE_ON_TEXT = {
    "targets": "number the classes first, y = np.unique(names, return_inverse=True)[1]",
    "inputs": "encode it as numbers first",
}


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

    """

    def __init__(self, x: Any, y: Tensor) -> None:
        self.x, self.y, self.n_data = x, y, y.shape[0]

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
        moved = TensorExamples(to_device(self.x, device), self.y.to(device))
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


class DatasetExamples(IndexedExamples):
    """A map-style dataset of pairs `(x, y)`, read item by item.

    Args:
        dataset: the dataset.
        likelihood: prepares the targets.
        dtype: of inputs that are floating-point numbers.

    """

    def __init__(self, dataset: Dataset[Any], likelihood: Likelihood, dtype: torch.dtype) -> None:
        assert isinstance(dataset, Sized)
        self.dataset, self.likelihood, self.dtype = dataset, likelihood, dtype
        self.n_data = len(dataset)

    def fetch(self, indices: Tensor) -> Batch:
        items = default_collate([self.dataset[i] for i in indices.tolist()])
        return self._checked(_pair(items, self.likelihood, self.dtype))


class LoaderExamples(Examples):
    """A user's loader, with its batches in its order.

    Args:
        loader: an iterable of batches `(x, y)` that can be read repeatedly.
        n_data: number of examples.
        likelihood: prepares the targets.
        dtype: of inputs that are floating-point numbers.

    """

    def __init__(self, loader: Any, n_data: int, likelihood: Likelihood, dtype: torch.dtype) -> None:
        self.loader, self.n_data, self.likelihood, self.dtype = loader, n_data, likelihood, dtype
        try:
            self._length = len(loader)
        except TypeError:
            # Schedules need the number of steps in advance: one pass over the data counts them.
            self._length = sum(1 for _ in loader)

    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        for number, batch in enumerate(self.loader):
            if number >= skip:
                yield [self._checked(_pair(batch, self.likelihood, self.dtype))] * members

    def count_batches(self, batch_size: int) -> int:
        return self._length

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for batch in self.loader:
            yield self._checked(_pair(batch, self.likelihood, self.dtype))


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


def as_examples(data: Any, likelihood: Likelihood, dtype: torch.dtype, n_data: int | None = None) -> Examples:
    """Read training data in any of its forms.

    Args:
        data: a pair `(x, y)` of tensors or arrays, a Dataset, a DataLoader or another iterable of batches.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.
        n_data: number of examples, for loaders that do not know it.

    Returns:
        The examples.

    Raises:
        TypeError: if the data has another form, or holds text.
        ValueError: if it is empty, its lengths differ, or values are not finite.

    Examples:
        >>> from bayesify.training.batches import as_examples
        >>> examples = as_examples((x.numpy(), y.numpy()), bnn.likelihood, torch.float32)
        >>> examples.n_data, examples.count_batches(batch_size=25)
        (60, 3)
        >>> inputs, targets = examples.first()
        >>> inputs.shape, targets
        (torch.Size([2, 2]), tensor([0, 1]))

    """
    if isinstance(data, Examples):
        return data
    if isinstance(data, TensorDataset):
        data = (data.tensors[0] if len(data.tensors) == 2 else data.tensors[:-1], data.tensors[-1])
    if isinstance(data, DataLoader):
        return _from_loader(data, likelihood, dtype, n_data)
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = as_inputs(data[0], dtype), likelihood.prepare(_as_targets(data[1], likelihood))
        _check_lengths(x, y)
        _check_count(n_data, y.shape[0])
        return TensorExamples(x, y)
    if isinstance(data, IterableDataset):
        return _from_loader(DataLoader(data, batch_size=128, generator=torch.Generator()), likelihood, dtype, n_data)
    if isinstance(data, tuple | list | dict | str | Tensor | np.ndarray):
        raise TypeError(f"data must be a pair (x, y), a Dataset or a DataLoader, got {type(data).__name__}")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise ValueError("the data set is empty")
        _check_count(n_data, len(data))
        return DatasetExamples(data, likelihood, dtype)
    if hasattr(data, "__iter__"):
        return _from_loader(data, likelihood, dtype, n_data)
    raise TypeError(f"data must be a pair (x, y), a Dataset or a DataLoader, got {type(data).__name__}")


def for_scoring(data: Any, likelihood: Likelihood, dtype: torch.dtype) -> Examples:
    """Read data that is only scored, for which the number of examples need not be known in advance.

    Args:
        data: in any form that `as_examples` takes.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.

    Returns:
        The examples.

    """
    loader = hasattr(data, "__iter__") and not isinstance(data, tuple | list | dict | str | Tensor | np.ndarray)
    read_by_number = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    unknown = loader and not read_by_number and _distinct(data) is None
    return as_examples(data, likelihood, dtype, n_data=1 if unknown else None)


def batches_for_scoring(data: Any, likelihood: Likelihood, dtype: torch.dtype) -> list[Batch]:
    """All examples of data that is only scored, in order.

    Args:
        data: in any form that `as_examples` takes.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.

    Returns:
        Pairs `(x, y)`.

    """
    return list(for_scoring(data, likelihood, dtype).in_order(1000))


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


def as_inputs(x: Any, dtype: torch.dtype, *, finite: bool = True) -> Any:
    """Inputs as tensors in the network's precision; integers stay integers.

    Args:
        x: a tensor, an array, a DataFrame, a list, or a tuple or mapping of such.
        dtype: of inputs that are floating-point numbers.
        finite: refuse NaN and infinity.

    Returns:
        The same structure of tensors, `[n, ...]` each.

    Raises:
        TypeError: if inputs are not numbers.
        ValueError: if they are empty, differ in length, or are not finite.

    """

    def convert(leaf: Any) -> Any:
        tensor = _as_tensor(leaf, "inputs")
        if tensor.is_floating_point():
            tensor = tensor.to(dtype)
            # If the sum is finite, so are all values: one pass. Otherwise they are checked one by one.
            if finite and not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
                bad = int((~torch.isfinite(tensor)).sum())
                raise ValueError(f"inputs hold {bad} values that are NaN or infinite: clean or impute them first")
        return tensor

    x = dict(x) if isinstance(x, Mapping) else x
    converted = x if isinstance(x, dict | tuple) else _listed(x)
    converted = pytree.tree_map(convert, converted)
    sizes = {leaf.shape[0] if leaf.dim() else -1 for leaf in pytree.tree_leaves(converted)}
    if len(sizes) != 1:
        raise ValueError(f"the parts of x must have the same number of examples, got {sorted(sizes)}")
    if sizes == {-1}:
        raise ValueError("inputs must have a batch axis, got a single number")
    if sizes == {0}:
        raise ValueError("the data set is empty")
    return converted


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


def _listed(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, list) else x


def _as_tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{what} must be dense, got a sparse tensor: use .to_dense()")
        return value
    if hasattr(value, "toarray"):
        raise TypeError(f"{what} must be dense, got a sparse {type(value).__name__}: use .toarray()")
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf" and hasattr(value, "columns") and hasattr(value, "items"):
        array = _joined(dict(value.items()), what)
    if array.dtype.kind not in "biuf":
        text = _text_in(array)
        if text is not None:
            raise TypeError(f"{what} must be numbers, got text such as {text!r}: {_ADVICE_ON_TEXT[what]}")
        raise TypeError(f"{what} must be numbers in a tensor or array, got {type(value).__name__}")
    array = np.ascontiguousarray(array)
    if not array.flags.writeable and not isinstance(value, np.memmap):
        # Arrays from a DataFrame are read-only, which torch does not support. A memory-mapped file is not copied.
        array = array.copy()
    return torch.from_numpy(array)


def _as_targets(y: Any, likelihood: Likelihood) -> Any:
    """Targets as a tensor; by name, where they have several likelihoods."""
    if likelihood.kind == "several" and isinstance(y, Mapping):
        return {name: _as_tensor(values, "targets") for name, values in y.items()}
    if isinstance(y, Mapping) and not hasattr(y, "columns"):
        names = ", ".join(map(repr, y))
        raise TypeError(f"targets are a dict with {names}: give a dict of likelihoods with the same names")
    return _as_tensor(y, "targets")


def _joined(columns: Mapping[Any, Any], what: str) -> NDArray[Any]:
    """The numbers of a DataFrame whose columns are of different types."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            text = _text_in(array)
            holds = f"text such as {text!r}" if text is not None else f"values of type {columns[name].dtype}"
            raise TypeError(f"{what} must be numbers, column {name!r} holds {holds}: encode it or leave it out")
    return np.column_stack(list(arrays.values()))


def _text_in(array: NDArray[Any]) -> str | None:
    return next((str(item) for item in array.flat if isinstance(item, str)), None)


def _check_lengths(x: Any, y: Tensor) -> None:
    if count(x) != y.shape[0]:
        raise ValueError(f"x and y must have the same number of examples, got {count(x)} and {y.shape[0]}")


def _check_count(n_data: int | None, actual: int) -> None:
    if n_data not in (None, actual):
        raise ValueError(f"n_data must be the number of examples, {actual}, got {n_data}: leave it out for this data")


def _pair(batch: Any, likelihood: Likelihood, dtype: torch.dtype) -> Batch:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        found = f"a dict with {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else type(batch).__name__
        raise ValueError(f"each batch or item of the data must be a pair (x, y), got {found}: x may be a dict")
    x, y = as_inputs(batch[0] if not isinstance(batch[0], list) else tuple(batch[0]), dtype), batch[1]
    y = likelihood.prepare(_as_targets(y, likelihood))
    _check_lengths(x, y)
    return x, y


def _distinct(loader: Any) -> int | None:
    """The number of distinct examples of a loader, where it knows it."""
    dataset = getattr(loader, "dataset", None)
    if not isinstance(dataset, Sized) or isinstance(dataset, IterableDataset):
        return None
    # A sampler of a subset has fewer distinct examples than its data set. Where there is a batch sampler, it holds
    # the subset, and the loader's own sampler lists all examples.
    batched = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    subset = getattr(batched or getattr(loader, "sampler", None), "indices", None)
    return len(dataset) if subset is None else len({int(index) for index in subset})


def _from_loader(loader: Any, likelihood: Likelihood, dtype: torch.dtype, n_data: int | None) -> LoaderExamples:
    if isinstance(loader, Iterator):
        raise TypeError("data must be readable more than once, got an iterator: give a DataLoader")
    n_data = _distinct(loader) if n_data is None else n_data
    if n_data is None:
        raise ValueError("the number of examples is not known from this loader: give n_data=")
    if n_data < 1:
        raise ValueError("the data set is empty")
    return LoaderExamples(loader, n_data, likelihood, dtype)
