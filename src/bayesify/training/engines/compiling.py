"""Compiling a pass where that pays and works, and the same pass uncompiled where it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from bayesify import noise
from bayesify.training.engines.hashing import one_operation

logger = logging.getLogger("bayesify")

# Compiling a step takes this long (two cores); an uncompiled step costs this much more, per weight and, on a GPU, per
# step, because there Python is slower than the arithmetic (`bayesify bench step` with and without `--eager`).
_SECONDS_TO_COMPILE = 15.0
_SECONDS_PER_WEIGHT = 1.5e-8
_SECONDS_PER_STEP_ON_GPU = 1.5e-3
# Where the processor can, a product and a sum are one operation that rounds once.
_OPTIONS = {"cpp.enable_floating_point_contract_flag": "fast"}
# The operations of `_small`, which softplus and its slope both start from.
_ALIKE = {
    operation.default
    for operation in (torch.ops.aten.abs, torch.ops.aten.clamp, torch.ops.aten.neg, torch.ops.aten.exp)
}
# log1p(t) / t on [0, 1] to 5e-9 (Chebyshev interpolation), by powers of t.
_LOG1P = (
    0.999999995,
    -0.49999904,
    0.33330004,
    -0.249545589,
    0.196781173,
    -0.153118631,
    0.106142647,
    -0.0570642008,
    0.0199071609,
    -0.00325637847,
)


def worth_compiling(weights: int, steps: int, device: torch.device) -> bool:
    """Whether the time saved over all steps exceeds the time that compiling takes."""
    saved = weights * _SECONDS_PER_WEIGHT if device.type == "cpu" else _SECONDS_PER_STEP_ON_GPU
    return steps * saved > _SECONDS_TO_COMPILE


def compile_function(
    function: Callable[..., Any], example: tuple[Any, ...], *, threads: int | None = None
) -> Callable[..., Any]:
    """A function of tensors alone, traced on this example and compiled for its shapes; the example is not changed.

    Tracing runs the Python once on imaginary tensors, so there is nothing to guard and nothing to recompile. What was
    compiled is kept in the compiler's folder, from which the same trace, whatever is in its tensors, takes it again.

    With `threads` it is made for being called from several Python threads at the same time, each of which has so many
    threads of torch's own: it is written in C++ throughout, which does not hold the other Python threads up.
    """
    from torch._inductor import compile as compile_graph
    from torch.fx.experimental.proxy_tensor import make_fx

    # A trace takes a tensor that is given twice for one input: members would all be trained on the last one's batch.
    example = tuple(one.clone() if any(one is other for other in example[:n]) else one for n, one in enumerate(example))
    with noise.mixing(one_operation()):
        graph = make_fx(function, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
    _share_repeated(graph)
    with torch.no_grad(), _kept(example) as shown:
        # The code is made for a number of threads: without its name, one made for another number would be found.
        options = {**_OPTIONS, "cpp.threads": threads or torch.get_num_threads(), "cpp_wrapper": threads is not None}
        compiled: Callable[..., Any] = compile_graph(graph, shown, options=options)
    return compiled


def _share_repeated(graph: GraphModule) -> None:
    """Compute once what forward and backward pass both compute, up to the first operation that changes a tensor.

    The compiler does not look for it, and an exponential is among it: softplus and its slope have it in common.
    """
    first: dict[Any, Node] = {}
    for node in list(graph.graph.nodes):
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            break
        if node.target in _ALIKE:
            earlier = first.setdefault((node.target, node.args, tuple(node.kwargs.items())), node)
            if earlier is not node:
                node.replace_all_uses_with(earlier)
                graph.graph.erase_node(node)
    graph.recompile()


@contextmanager
def _kept(example: Sequence[Any]) -> Iterator[list[Any]]:
    """What to show the compiler in place of the example; inside, it looks up and keeps what it makes, where it can.

    It does so for graphs whose shapes it has a record of, as its own tracer gives them: here, that all are as they are.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if config.cpp_wrapper:  # what is written in C++ throughout cannot be kept
        yield list(example)
        return
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    with tracing(TracingContext(mode)):
        yield [mode.from_tensor(tensor, static_shapes=True) for tensor in example]


def _decompositions() -> dict[Any, Callable[..., Any]]:
    return {
        torch.ops.aten.softplus.default: _softplus,
        torch.ops.aten.softplus_backward.default: _softplus_backward,
    }


def _softplus(x: Tensor, beta: float = 1, _: float = 20) -> Tensor:
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|), the second by a polynomial, to float32's digits.

    A division or the logarithm of a math library costs several times as much.
    """
    if x.dtype != torch.float32 or beta != 1:
        return torch.maximum(x * beta, torch.zeros_like(x)) / beta + torch.log1p(torch.exp(-(x * beta).abs())) / beta
    t = _small(x)
    return x.clamp(min=0.0) + t * noise.polynomial(_LOG1P, t)


def _softplus_backward(gradient: Tensor, x: Tensor, beta: float = 1, _: float = 20) -> Tensor:
    """The gradient times sigmoid(x), from the same e^-|x|."""
    t = torch.exp(-(x * beta).abs()) if x.dtype != torch.float32 or beta != 1 else _small(x)
    return gradient * (torch.where(x >= 0, 1.0, t) / (1.0 + t))


def _small(x: Tensor) -> Tensor:
    """e^-|x|, not below e^-60.

    Smaller numbers change nothing that is added to one, and once they are multiplied they soon are denormal, which is
    up to a hundred times slower.
    """
    return torch.exp(-x.abs().clamp(max=60.0))
