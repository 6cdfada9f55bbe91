"""Compiling functions of tensors, and when that saves time."""

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
from bayesify.training.engines.compiled_noise import one_operation
from bayesify.training.engines.in_pieces import WORTH_PIECES, cut, in_pieces, sparing_memory
from bayesify.training.engines.repeated_noise import repeat_noise

logger = logging.getLogger("bayesify")

# Seconds that compiling a step takes on two cores, and that it saves: per weight on a CPU, per step on a GPU, where
# Python is slower than the arithmetic. Measured by `bayesify bench step` with and without `--eager`. Deep networks take
# longer and save more on a GPU, both by the number of their tensors (ResNet-18 has 62, BERT-base 199).
_SECONDS_TO_COMPILE, _SECONDS_TO_COMPILE_PIECES, _SECONDS_TO_COMPILE_A_TENSOR = 15.0, 40.0, 0.3
_SECONDS_PER_WEIGHT = 1.5e-8
_SECONDS_PER_STEP_ON_GPU, _SECONDS_PER_TENSOR_ON_GPU = 1.5e-3, 1.5e-4
# Fuse a product and a sum into one operation that rounds once, where the processor has it.
_OPTIONS = {"cpp.enable_floating_point_contract_flag": "fast"}
# The operations of `_exp_minus_abs`, which softplus and its derivative share.
_SHARED = {
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


def worth_compiling(weights: int, steps: int, device: torch.device, tensors: int = 1) -> bool:
    """Whether the time saved over all steps exceeds the time that compiling takes.

    Args:
        weights: weights per step, times draws.
        steps: number of training steps.
        device: where they are made.
        tensors: of the network.

    """
    if device.type == "cpu":
        compiling = _SECONDS_TO_COMPILE_PIECES if weights >= WORTH_PIECES else _SECONDS_TO_COMPILE
        return steps * weights * _SECONDS_PER_WEIGHT > compiling
    saved = max(_SECONDS_PER_STEP_ON_GPU, _SECONDS_PER_TENSOR_ON_GPU * tensors)
    return steps * saved > max(_SECONDS_TO_COMPILE, _SECONDS_TO_COMPILE_A_TENSOR * tensors)


def compile_function(
    function: Callable[..., Any],
    example: tuple[Any, ...],
    *,
    threads: int | None = None,
    lean: bool = False,
    pieces: Sequence[int] = (),
) -> Callable[..., Any]:
    """Compile a function of tensors for the shapes of one example.

    Tracing runs the Python code once on tensors without values, so nothing is guarded or recompiled. The compiler keeps
    its result on disk and finds it again for the same trace.

    Args:
        function: takes tensors alone; it may change them in place.
        example: arguments that show the shapes; they are not changed.
        threads: for functions that several Python threads call at once: torch threads for each call. The result is
            C++ code throughout, which does not block the other Python threads.
        lean: make noise and widths again where they are needed again, instead of keeping them: on a GPU memory takes
            longer than arithmetic.
        pieces: sizes of the pieces into which flat vectors are cut to spare memory, where that is possible
            (`in_pieces.py`); none leaves them whole.

    Returns:
        The compiled function.

    """
    from torch._inductor import compile as compile_graph
    from torch.fx.experimental.proxy_tensor import make_fx

    # A trace merges a tensor that is passed twice into one input: all members would train on the last one's batch.
    example = tuple(
        tensor.clone() if any(tensor is earlier for earlier in example[:n]) else tensor
        for n, tensor in enumerate(example)
    )
    if pieces:
        try:
            return _compiled_in_pieces(function, example, pieces)
        except Exception as problem:  # noqa: BLE001 -- an operation on whole vectors, or another version of the compiler
            logger.debug("the step is compiled on whole vectors: %s", problem)
    rules = {} if lean else _decompositions()
    with noise.mixing(one_operation(), one_by_one=lean):
        graph = make_fx(function, rules, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
    if lean:
        repeat_noise(graph)
    else:
        _share_repeated(graph)
    with torch.no_grad(), _compiler_cache(example) as shown:
        options = {**_options(threads or torch.get_num_threads()), "cpp_wrapper": threads is not None}
        compiled: Callable[..., Any] = compile_graph(graph, shown, options=options)
    return compiled


def _compiled_in_pieces(
    function: Callable[..., Any], example: tuple[Any, ...], pieces: Sequence[int]
) -> Callable[..., Any]:
    from torch._inductor import compile as compile_graph
    from torch.fx.experimental.proxy_tensor import make_fx

    with noise.mixing(one_operation(), pieces=pieces):
        whole = make_fx(function, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
    graph = cut(whole, pieces)
    with torch.no_grad(), _compiler_cache(in_pieces(example, pieces)) as shown, sparing_memory() as sparing:
        compiled = compile_graph(graph, shown, options={**_options(torch.get_num_threads()), **sparing})
    return lambda *tensors: compiled(*in_pieces(tensors, pieces))


def _options(threads: int) -> dict[str, Any]:
    """Compiled code depends on the number of threads: naming it keeps the cache from returning code for another one."""
    return {**_OPTIONS, "cpp.threads": threads}


def _share_repeated(graph: GraphModule) -> None:
    """Compute once what forward and backward pass both compute, up to the first operation that changes a tensor.

    The compiler does not search for it. It includes an exponential, which softplus and its derivative share.
    """
    first: dict[Any, Node] = {}
    for node in list(graph.graph.nodes):
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            break
        if node.target in _SHARED:
            earlier = first.setdefault((node.target, node.args, tuple(node.kwargs.items())), node)
            if earlier is not node:
                node.replace_all_uses_with(earlier)
                graph.graph.erase_node(node)
    graph.recompile()


@contextmanager
def _compiler_cache(example: Sequence[Any]) -> Iterator[list[Any]]:
    """Let the compiler use its cache on disk inside this context, where it can; yields what replaces the example.

    The cache needs a record of all shapes, which the compiler's own tracer makes. Here all of them are fixed.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if config.cpp_wrapper:  # C++ code throughout cannot be cached
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
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|), the second term by a polynomial in full float32 precision.

    A division, or the logarithm of a math library, costs several times as much.
    """
    if x.dtype != torch.float32 or beta != 1:
        return torch.maximum(x * beta, torch.zeros_like(x)) / beta + torch.log1p(torch.exp(-(x * beta).abs())) / beta
    t = _exp_minus_abs(x)
    return x.clamp(min=0.0) + t * noise.polynomial(_LOG1P, t)


def _softplus_backward(gradient: Tensor, x: Tensor, beta: float = 1, _: float = 20) -> Tensor:
    """The gradient times sigmoid(x), from the same e^-|x|."""
    t = torch.exp(-(x * beta).abs()) if x.dtype != torch.float32 or beta != 1 else _exp_minus_abs(x)
    return gradient * (torch.where(x >= 0, 1.0, t) / (1.0 + t))


def _exp_minus_abs(x: Tensor) -> Tensor:
    """e^-|x|, at least e^-60.

    Smaller numbers do not change a sum with one, and their products are denormal: up to a hundred times slower.
    """
    return torch.exp(-x.abs().clamp(max=60.0))
