"""Recorders that tracing puts around a pass: which module read which tensor, and which dropout it met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from bayesify.functional.dropout import KeyedDropout, Site


class EscapedWeightsError(ValueError):
    """A network that reads weights which are not the ones it is given."""

    def __init__(self) -> None:
        super().__init__(
            "the network reads weights past its named parameters (from a list, another object or a closure): "
            "register them as parameters or buffers of the module"
        )


class ReadRecorder(TorchFunctionMode):
    """Writes down which module's forward was running whenever a tensor was handed to a function of torch.

    The `hollow` ones have no values: torch does not always refuse them, so reading one is an error here.
    """

    def __init__(self, tensors: Mapping[str, Tensor], hollow: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.hollow = {id(tensor) for tensor in hollow}
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.readers: dict[str, set[str]] = {}
        self.running: list[str] = []
        self.entered = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _ASKS_FOR_NO_VALUE:
            reader = self.running[-1] if self.running else ""
            for leaf in pytree.tree_leaves((args, kwargs)):
                if id(leaf) in self.hollow:
                    raise EscapedWeightsError
                name = self.names.get(id(leaf))
                if name is not None:
                    self.readers.setdefault(name, set()).add(reader)
        return func(*args, **(kwargs or {}))


@dataclass
class Seen:
    """One dropout as it was met while tracing."""

    rate: float
    shape: list[int]
    owner: str
    batch_first: dict[int, bool] = field(default_factory=dict)


class DropoutRecorder(KeyedDropout):
    """Drops nothing and writes down every dropout of a pass over `copies` equal inputs; `running` names the modules."""

    def __init__(self, copies: int, running: Sequence[str], *, always: bool = False) -> None:
        super().__init__(None, always=always)
        self.copies = copies
        self.running = running
        self.seen: list[Seen] = []

    def _mask(self, x: Tensor, shape: list[int], rate: float, times: Tensor | None) -> Tensor:
        merged = [at for at, size in enumerate(shape) if size > self.copies and size % self.copies == 0]
        orders = {axis: _copies_vary_slowest(x, axis, self.copies) for axis in merged}
        self.seen.append(Seen(rate, shape, self.running[-1] if self.running else "", orders))
        return torch.ones((), device=x.device, dtype=x.dtype)


def sites_from(first: DropoutRecorder, second: DropoutRecorder) -> list[Site]:
    """Sites of a network from two traced passes that differ in the number of inputs alone."""
    sites = []
    for one, two in zip(first.seen, second.seen, strict=False):
        grown = (
            axis
            for axis, (a, b) in enumerate(zip(one.shape, two.shape, strict=False))
            if a != b and a * second.copies == b * first.copies
        )
        axis = next(grown, None)
        sites.append(Site(one.rate, axis, one.batch_first.get(axis, True) if axis is not None else True))
    return sites


def _copies_vary_slowest(x: Tensor, axis: int, copies: int) -> bool:
    # All inputs are equal: along the right order of the merged axis nothing changes from copy to copy.
    inner = x.shape[axis] // copies
    slow, fast = torch.unflatten(x, axis, (copies, inner)), torch.unflatten(x, axis, (inner, copies))
    change_if_slow = (slow - slow.narrow(axis, 0, 1)).abs().sum()
    change_if_fast = (fast - fast.narrow(axis + 1, 0, 1)).abs().sum()
    return not bool(change_if_fast < change_if_slow)


_ASKS_FOR_NO_VALUE = frozenset(
    {
        *(
            getattr(torch.Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda")
        ),
        *(getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "stride", "is_floating_point", "__len__")),
        torch.is_floating_point,
        torch.numel,
    }
)
