"""Inputs that a network looks up in a table, such as the numbers of words: which are allowed, and whether others are.

An index outside its table is an error without its value on a CPU, and ends all work on a GPU. So the tables that read
the inputs are noted in a pass over two examples, and inputs are compared with their numbers of rows before they are
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from bayesify.functional.network import Network


def takes_whole_numbers(network: Network, shape: Sequence[int]) -> bool:
    """Whether the network takes whole numbers alone, such as the numbers of words.

    A file or a request has them as numbers of any kind. The network is tried on zeros, which every table has.

    Args:
        network: the network.
        shape: of one input.

    """
    zeros = torch.zeros(2, *shape, device=network.device)
    return not _takes(network, zeros.to(network.dtype)) and _takes(network, zeros.to(torch.int64))


def tables_of(network: Network, x: Any) -> dict[int, int]:
    """The rows of the tables that look inputs up as they are, by the number of the input among the leaves of x.

    Args:
        network: the network.
        x: a small batch of inputs on its device; only the first call in which a pass succeeds uses it.

    """
    if network.tables is not None:
        return network.tables
    leaves, noting = pytree.tree_leaves(x), _Noting()
    complete = not any(map(_whole, leaves)) or _takes(network, x, noting)
    found: dict[int, int] = {}
    for indices, rows in noting.found:
        number = next((place for place, leaf in enumerate(leaves) if _same(indices, leaf)), None)
        if number is not None:
            found[number] = min(rows, found.get(number, rows))
    if complete:
        network.tables = found
    return found


def first_outside(network: Network, x: Any) -> str | None:
    """What is wrong with the first index in a pass that its table does not have; None where all have their rows.

    Args:
        network: the network.
        x: a batch of inputs on its device.

    """
    noting = _Noting()
    _takes(network, x, noting)
    problems = (outside(rows, indices) for indices, rows in noting.found)
    return next((problem for problem in problems if problem is not None), None)


def outside(rows: int, indices: Tensor) -> str | None:
    """What is wrong with indices into a table; None where the table has them all.

    Args:
        rows: of the table.
        indices: whole numbers.

    Examples:
        >>> from bayesify.functional.look_ups import outside
        >>> outside(50, torch.tensor([3, 70]))
        'the largest index is 70, but an embedding has 50 rows, for indices from 0 to 49'

    """
    if not indices.numel():
        return None
    smallest, largest = (int(end) for end in torch.aminmax(indices))
    if smallest >= 0 and largest < rows:
        return None
    which = f"largest index is {largest}" if largest >= rows else f"smallest index is {smallest}"
    return f"the {which}, but an embedding has {rows} rows, for indices from 0 to {rows - 1}"


class _Noting(TorchFunctionMode):
    """Notes the indices of each look-up in a pass and the rows of its table, up to an error of the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Tensor, int]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in {functional.embedding, functional.embedding_bag}:
            given = {**dict(zip(("input", "weight"), args, strict=False)), **named}
            self.found.append((given["input"], len(given["weight"])))
        return func(*args, **named)


def _takes(network: Network, x: Any, around: TorchFunctionMode | None = None) -> bool:
    """Whether a pass at the initial weights succeeds; what it shows about the network is not kept."""
    trace, passed = network.trace, False
    with suppress(Exception), torch.no_grad():
        network.call(network.unflatten(network.initial), x, around=around)
        passed = True
    network.trace = trace
    return passed


def _whole(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_floating_point() and leaf.dtype != torch.bool


def _same(indices: Tensor, leaf: Any) -> bool:
    """Whether indices are an input itself, and not numbers that have been computed from it."""
    return (
        isinstance(leaf, Tensor)
        and indices.dtype == leaf.dtype
        and indices.shape == leaf.shape
        and indices.stride() == leaf.stride()
        and indices.data_ptr() == leaf.data_ptr()
    )
