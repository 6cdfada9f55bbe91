"""The position of each trained tensor in the flat vector of weights, and the precision of that vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Place:
    """The position of one trained tensor in the flat vector.

    Args:
        name: name of the tensor in the module.
        shape: its shape.
        dtype: its precision in the module.
        start: where it starts in the vector.
        random: whether it is random.

    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int
    random: bool

    @property
    def stop(self) -> int:
        """Where the tensor ends in the vector."""
        return self.start + self.shape.numel()


def check_trainable(trained: Mapping[str, Tensor]) -> None:
    """Raise where parameters cannot be part of the vector."""
    if not trained:
        raise ValueError("the network has no trained parameters: set requires_grad=True on some of them")
    for name, tensor in trained.items():
        if nn.parameter.is_lazy(tensor):
            raise ValueError(f"parameter {name} has no shape yet: run the network once on a batch before wrapping it")
        if not tensor.is_floating_point():
            raise ValueError(f"parameter {name} is {tensor.dtype}: only real floating-point weights can be random")
        if tensor.is_meta:
            raise ValueError(f"parameter {name} is on the meta device and has no values: load the network first")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"parameter {name} of the network holds NaN or infinity")
    devices = sorted({str(tensor.device) for tensor in trained.values()})
    if len(devices) > 1:
        raise ValueError(f"the network's parameters are on {' and '.join(devices)}: move them to one device")


def lay_out(trained: Mapping[str, Tensor], random_names: set[str]) -> list[Place]:
    """Positions of all trained tensors in the vector, the random ones first."""
    places, start = [], 0
    for random in (True, False):
        for name, tensor in trained.items():
            if (name in random_names) == random:
                places.append(Place(name, tensor.shape, tensor.dtype, start, random))
                start += tensor.numel()
    return places


def common_dtype(trained: Mapping[str, Tensor]) -> torch.dtype:
    """The precision of the vector: at least float32, because half precision would round a narrow posterior away."""
    dtype = torch.float32
    for tensor in trained.values():
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def main_dtype(module: nn.Module) -> torch.dtype:
    """The precision of most weights, to which inputs are cast."""
    sizes: dict[torch.dtype, int] = {}
    for tensor in module.parameters():
        if tensor.is_floating_point():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    return max(sizes, key=lambda dtype: sizes[dtype])
