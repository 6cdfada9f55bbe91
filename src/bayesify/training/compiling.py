"""Compiling a pass where that pays and works, and the same pass uncompiled where it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger("bayesify")

# Compiling a step takes this long (two cores); an uncompiled step costs this much more, per weight and, on a GPU, per
# step, because there Python is slower than the arithmetic (`bayesify bench step` with and without `--eager`).
_SECONDS_TO_COMPILE = 30.0
_SECONDS_PER_WEIGHT = 1.5e-8
_SECONDS_PER_STEP_ON_GPU = 1.5e-3


def worth_compiling(weights: int, steps: int, device: torch.device) -> bool:
    """Whether the time saved over all steps exceeds the time that compiling takes."""
    saved = weights * _SECONDS_PER_WEIGHT if device.type == "cpu" else _SECONDS_PER_STEP_ON_GPU
    return steps * saved > _SECONDS_TO_COMPILE


def compile_function(function: Callable[..., Any], example: tuple[Any, ...]) -> Callable[..., Any]:
    """A function of tensors alone, traced on this example and compiled for its shapes; the example is not changed.

    Tracing runs the Python once on imaginary tensors, so there is nothing to guard and nothing to recompile.
    """
    from torch._inductor import compile as compile_graph
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(function, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
    with torch.no_grad():
        compiled: Callable[..., Any] = compile_graph(graph, list(example))
    return compiled


def _decompositions() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.softplus.default: _softplus}


def _softplus(x: torch.Tensor, beta: float = 1, _: float = 20) -> torch.Tensor:
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|), the second by the series of 2 artanh(t / (2 + t)), to float32's digits.

    With t up to one the series' argument is up to a third; the logarithm of a math library costs three times as much.
    """
    if x.dtype != torch.float32 or beta != 1:
        return torch.maximum(x * beta, torch.zeros_like(x)) / beta + torch.log1p(torch.exp(-(x * beta).abs())) / beta
    t = torch.exp(-x.abs())
    z = t / (2.0 + t)
    square = z * z
    total = torch.full_like(square, 1 / 15)
    for odd in (13, 11, 9, 7, 5, 3, 1):
        total = total * square + 1 / odd
    return x.clamp(min=0.0) + 2.0 * z * total
