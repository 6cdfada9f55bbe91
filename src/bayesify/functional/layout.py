"""Where each trained tensor of a network lives in its flat vector of weights, and in which precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Place:
    """Where one trained tensor lives in the flat vector."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int
    random: bool

    @property
    def stop(self) -> int:
        return self.start + self.shape.numel()


def check_trainable(trained: Mapping[str, Tensor]) -> None:
    """Refuse parameters that cannot have a place in the vector."""
    if not trained:
        raise ValueError("the network has no trained parameters: there is nothing to be Bayesian about")
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
    """Places for all trained tensors, the random ones first."""
    places, start = [], 0
    for random in (True, False):
        for name, tensor in trained.items():
            if (name in random_names) == random:
                places.append(Place(name, tensor.shape, tensor.dtype, start, random))
                start += tensor.numel()
    return places


def common_dtype(trained: Mapping[str, Tensor]) -> torch.dtype:
    """The vector's precision: half-precision weights are float32 in it, where a narrow posterior is not lost."""
    dtype = torch.float32
    for tensor in trained.values():
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def main_dtype(module: nn.Module) -> torch.dtype:
    """The precision of most weights, in which a network takes its inputs."""
    sizes: dict[torch.dtype, int] = {}
    for tensor in module.parameters():
        if tensor.is_floating_point():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    return max(sizes, key=lambda dtype: sizes[dtype])
