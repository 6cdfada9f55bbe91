"""How outputs and targets are paired: never by broadcasting, and with a clear error if they do not fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bayesify.likelihoods.likelihood import Likelihood


def target_tensor(targets: Any) -> Tensor:
    """Targets in any form as a tensor with one row per example; raises a ValueError if that is not possible."""
    if isinstance(targets, Tensor):
        tensor = targets.detach()
    else:
        array = np.asarray(targets)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"targets must be numbers, got {array.dtype.name}: turn names into numbers first")
        tensor = torch.tensor(array)
    if tensor.ndim == 0:
        raise ValueError("targets must have one entry per example, got a single number")
    if tensor.numel() == 0:
        raise ValueError(f"targets are empty: at least 1 example is needed, got shape {list(tensor.shape)}")
    return tensor


def aligned(outputs: Tensor, targets: Tensor, trailing: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs as `[draws, batch, size, ...]` and targets as `[batch, size]`; the last `trailing` axes stay."""
    draws, batch, *dims = outputs.shape
    last = dims[len(dims) - trailing :]
    size = math.prod(dims[: len(dims) - trailing])
    if targets.shape[0] != batch or targets.numel() != batch * size:
        raise ValueError(f"targets {list(targets.shape)} do not fit outputs {[draws, batch, *dims]} (draws come first)")
    return outputs.reshape(draws, batch, size, *last), targets.reshape(batch, size)


def real(outputs: Tensor) -> Tensor:
    """Outputs in at least single precision: half precision is too coarse for a log-likelihood."""
    return outputs.float() if outputs.dtype in {torch.float16, torch.bfloat16} else outputs


def one_number(values: Tensor) -> Tensor:
    """Values without a last axis of size 1: `[draws, batch, 1]` becomes `[draws, batch]`."""
    return values.squeeze(-1) if values.ndim == 3 and values.shape[-1] == 1 else values


def check_rows(outputs: Tensor, targets: Tensor) -> None:
    """Raise an error unless outputs are a floating tensor with one row per example."""
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the network must return a tensor, got {type(outputs).__name__}: pick one with output=")
    if not outputs.is_floating_point():
        raise ValueError(f"the network must return floating numbers, got {outputs.dtype}")
    if outputs.ndim == 0 or len(outputs) != len(targets):
        rows = "a single number" if outputs.ndim == 0 else counted(len(outputs), "row")
        raise ValueError(
            f"the network must return one row per example, got {rows} for {counted(len(targets), 'example')}"
        )


def check_dims(likelihood: Likelihood, outputs: Tensor, targets: Tensor, parameters: int) -> None:
    """Raise an error unless there are `parameters` outputs for each number of a target."""
    needed, dims = list(targets.shape[1:]) or [1], list(outputs.shape[1:]) or [1]
    needed[0] *= parameters
    if len(needed) == len(dims) == 1 and needed != dims:
        problem = f"needs {counted(needed[0], 'output')} for these targets, the network gives {dims[0]}"
        raise ValueError(f"{type(likelihood).__name__} {problem}")
    if without_ones(needed) != without_ones(dims) or (parameters > 1 and needed[0] != dims[0]):
        problem = f"needs {shape_text(needed)} for these targets, the network gives {shape_text(dims)}"
        raise ValueError(f"{type(likelihood).__name__} {problem}")


def without_ones(shape: Iterable[int]) -> list[int]:
    """A shape without its dimensions of size 1."""
    return [size for size in shape if size != 1]


def shape_text(dims: Iterable[int]) -> str:
    """A shape as errors print it, such as `[batch, 3, 2]`."""
    return f"[{', '.join(['batch', *map(str, dims)])}]"
