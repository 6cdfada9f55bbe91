"""Recorders for a traced pass: which module read which tensor, and which dropout ran."""

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
    """A network reads weights other than the ones it is given."""

    def __init__(self) -> None:
        super().__init__(
            "the network reads weights that are not among its named parameters (from a list, another object or a "
            "closure): register them as parameters or buffers of the module"
        )


class ReadRecorder(TorchFunctionMode):
    """Records which module's `forward` was running when a tensor was passed to a function of torch.

    Args:
        tensors: the tensors to watch, by name.
        hollow: tensors without values. Torch does not always refuse them, so reading one is an error here.

    """

    def __init__(self, tensors: Mapping[str, Tensor], hollow: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.hollow = {id(tensor) for tensor in hollow}
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.readers: dict[str, set[str]] = {}
        # How many layers had been entered when a tensor was first read.
        self.read_at: dict[str, int] = {}
        # The last output of each layer, and its version then.
        self.outputs: dict[str, tuple[Tensor, int]] = {}
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
                    self.read_at.setdefault(name, self.entered)
        return func(*args, **(kwargs or {}))


@dataclass
class Seen:
    """One dropout of a traced pass."""

    rate: float
    shape: list[int]
    owner: str
    batch_first: dict[int, bool] = field(default_factory=dict)


class DropoutRecorder(KeyedDropout):
    """Drops nothing and records every dropout of a pass.

    Args:
        copies: number of equal inputs in the pass.
        running: names of the modules that are running, the innermost last.
        always: record also the dropout that evaluation mode switches off.

    """

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
    """The sites of a network, from two traced passes that differ only in the number of inputs."""
    sites = []
    for smaller, larger in zip(first.seen, second.seen, strict=False):
        grown = (
            axis
            for axis, (a, b) in enumerate(zip(smaller.shape, larger.shape, strict=False))
            if a != b and a * second.copies == b * first.copies
        )
        axis = next(grown, None)
        sites.append(Site(smaller.rate, axis, smaller.batch_first.get(axis, True) if axis is not None else True))
    return sites


def _copies_vary_slowest(x: Tensor, axis: int, copies: int) -> bool:
    # All inputs are equal, so in the right order of the merged axis the values do not change from copy to copy.
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
