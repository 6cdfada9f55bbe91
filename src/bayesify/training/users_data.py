"""Users' data as examples: tensors, arrays, data frames, a Dataset or a DataLoader.

Values that are no numbers or not finite, and inputs and targets of unequal lengths, are refused in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from bayesify.errors import counted
from bayesify.functional.inputs import check_columns, count
from bayesify.training.batches import Batch, Examples, IndexedExamples, TensorExamples
from bayesify.training.warnings import warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.likelihoods import Likelihood

_ADVICE_ON_TEXT = {
    "targets": "number the classes first, y = np.unique(names, return_inverse=True)[1]",
    "inputs": "encode it as numbers first",
}


def as_examples(
    data: Any,
    likelihood: Likelihood,
    dtype: torch.dtype,
    n_data: int | None = None,
    what: str = "data",
    columns: list[str] | None = None,
) -> Examples:
    """Read training data in any of its forms.

    Args:
        data: a pair `(x, y)` of tensors or arrays, a Dataset, a DataLoader or another iterable of batches.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.
        n_data: number of examples, for loaders that do not know it.
        what: the argument that holds the data, for error messages.
        columns: the order in which the columns of a data frame are read; None is that of the frame.

    Returns:
        The examples.

    Raises:
        TypeError: if the data has another form, or holds text.
        ValueError: if it is empty, its lengths differ, or values are not finite.

    Examples:
        >>> from bayesify.training.users_data import as_examples
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
        x, y = as_inputs(data[0], dtype, columns=columns), likelihood.prepare(_as_targets(data[1], likelihood))
        _check_lengths(x, y)
        _check_count(n_data, y.shape[0])
        return TensorExamples(x, y, columns_of(data[0]) if columns is None else columns)
    if isinstance(data, IterableDataset):
        return _from_loader(DataLoader(data, batch_size=128, generator=torch.Generator()), likelihood, dtype, n_data)
    if _is_a_part(data):
        raise TypeError(f"{what} must be a pair (x, y), a Dataset or a DataLoader, got {type(data).__name__}")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise ValueError("the data set is empty")
        _check_count(n_data, len(data))
        return DatasetExamples(data, likelihood, dtype)
    if hasattr(data, "__iter__"):
        return _from_loader(data, likelihood, dtype, n_data)
    raise TypeError(f"{what} must be a pair (x, y), a Dataset or a DataLoader, got {type(data).__name__}")


def for_scoring(
    data: Any, likelihood: Likelihood, dtype: torch.dtype, what: str = "data", columns: list[str] | None = None
) -> Examples:
    """Read data that is only scored, for which the number of examples need not be known in advance.

    Args:
        data: in any form that `as_examples` takes.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.
        what: the argument that holds the data, for error messages.
        columns: the order in which the columns of a data frame are read; None is that of the frame.

    Returns:
        The examples.

    """
    loader = hasattr(data, "__iter__") and not _is_a_part(data)
    read_by_number = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    unknown = loader and not read_by_number and _distinct(data) is None
    return as_examples(data, likelihood, dtype, n_data=1 if unknown else None, what=what, columns=columns)


def batches_for_scoring(
    data: Any, likelihood: Likelihood, dtype: torch.dtype, columns: list[str] | None = None
) -> list[Batch]:
    """All examples of data that is only scored, in order.

    Args:
        data: in any form that `as_examples` takes.
        likelihood: prepares and checks the targets.
        dtype: of inputs that are floating-point numbers.
        columns: the order in which the columns of a data frame are read; None is that of the frame.

    Returns:
        Pairs `(x, y)`.

    """
    return list(for_scoring(data, likelihood, dtype, columns=columns).in_order(1000))


def columns_of(x: Any) -> list[str] | None:
    """The names of the columns of a data frame; None where x is no frame, or its names are no texts or not distinct."""
    if not (hasattr(x, "columns") and hasattr(x, "to_numpy")):
        return None
    names = list(x.columns)
    return names if all(isinstance(name, str) for name in names) and len(set(names)) == len(names) else None


def as_inputs(x: Any, dtype: torch.dtype, *, finite: bool = True, columns: list[str] | None = None) -> Any:
    """Inputs as tensors in the network's precision; integers stay integers.

    Args:
        x: a tensor, an array, a DataFrame, a list, or a tuple or mapping of such.
        dtype: of inputs that are floating-point numbers.
        finite: refuse NaN and infinity.
        columns: the order in which the columns of a data frame are read; None is that of the frame.

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
                raise ValueError(f"inputs hold {counted(bad, 'NaN or infinite value')}: clean or impute them first")
        return tensor

    given = None if columns is None else columns_of(x)
    if columns is not None and given is not None and given != columns:
        check_columns(given, columns)
        x = x[columns]
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
        if self._length == 0:
            raise ValueError("the loader has no batches: is its batch_size larger than the data, with drop_last=True?")
        self._compared = False

    def batches(self, batch_size: int, seed: int, epoch: int, members: int, skip: int = 0) -> Iterator[list[Batch]]:
        unread = iter(self.loader)
        for number in range(self._length):
            try:
                batch = next(unread)
            except StopIteration:
                self._compare(f"it gave {number}, but the learning-rate schedule counts on {self._length}")
                return
            streams = isinstance(getattr(self.loader, "dataset", None), IterableDataset)
            if number == self._length - 1 and streams and not self._compared:
                # Only a stream can say a wrong number; of other data a further batch would be read in vain.
                more = next(unread, None) is not None
                self._compare(f"it has more, but an epoch reads {self._length}" if more else "")
            if number >= skip:
                yield [self._checked(_pair(batch, self.likelihood, self.dtype))] * members

    def _compare(self, found: str) -> None:
        """Warn, after the first epoch alone, if the loader has another number of batches than it says."""
        if found and not self._compared:
            warn(f"the length of the loader is {self._length} batches: {found}; correct __len__ of the data set")
        self._compared = True

    def count_batches(self, batch_size: int) -> int:
        return self._length

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        for batch in self.loader:
            yield self._checked(_pair(batch, self.likelihood, self.dtype))


def _is_a_part(data: Any) -> bool:
    """Whether this is no more than inputs or targets: an array, a data frame, a column of one, a dict, a text."""
    return isinstance(data, tuple | list | dict | str | Tensor | np.ndarray) or hasattr(data, "to_numpy")


def _pair(batch: Any, likelihood: Likelihood, dtype: torch.dtype) -> Batch:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        found = f"a dict with {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else type(batch).__name__
        raise ValueError(f"each batch or item of the data must be a pair (x, y), got {found}: x may be a dict")
    x, y = as_inputs(batch[0] if not isinstance(batch[0], list) else tuple(batch[0]), dtype), batch[1]
    y = likelihood.prepare(_as_targets(y, likelihood))
    _check_lengths(x, y)
    return x, y


def _as_targets(y: Any, likelihood: Likelihood) -> Any:
    """Targets as a tensor; by name, where they have several likelihoods."""
    if likelihood.kind == "several" and isinstance(y, Mapping):
        return {name: _as_tensor(values, "targets") for name, values in y.items()}
    if isinstance(y, Mapping) and not hasattr(y, "columns"):
        names = ", ".join(map(repr, y))
        raise TypeError(f"targets are a dict with {names}: give a dict of likelihoods with the same names")
    return _as_tensor(y, "targets")


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


def _listed(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, list) else x


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


def _from_loader(loader: Any, likelihood: Likelihood, dtype: torch.dtype, n_data: int | None) -> LoaderExamples:
    if isinstance(loader, Iterator):
        raise TypeError("data must be readable more than once, got an iterator: give a DataLoader")
    n_data = _distinct(loader) if n_data is None else n_data
    if n_data is None:
        raise ValueError("the number of examples is not known from this loader: give n_data=")
    if n_data < 1:
        raise ValueError("the data set is empty")
    return LoaderExamples(loader, n_data, likelihood, dtype)


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
