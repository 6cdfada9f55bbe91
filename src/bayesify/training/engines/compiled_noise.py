"""The hash of the noise as one operation of the compiler, which makes compiling much faster.

The compiler repeats an expression wherever it is used, up to some fifty operations, and merges repeated parts only
later. `mix` (`noise.py`) uses its argument twice in each of three lines, so four nested calls expand to 8^4
expressions: most of a minute of compiling, for the same few instructions. As one registered operation it is not
expanded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bayesify import noise


@cache
def one_operation() -> Callable[[Tensor], Tensor]:
    """`noise.mix` as a registered operation; the plain function where this version of torch lacks the compiler."""
    try:
        from torch._inductor.lowering import make_pointwise, register_lowering
        from torch._inductor.virtualized import ops
    except ImportError:
        return noise.mix
    operation = torch.library.custom_op("bayesify::mix", noise.mix, mutates_args=())
    operation.register_fake(torch.empty_like)
    operation.register_vmap(lambda _, in_dims, v: (operation(v), in_dims[0]))
    register_lowering(torch.ops.bayesify.mix.default, type_promotion_kind=None)(make_pointwise(_written_out(ops)))
    return operation


def _written_out(ops: Any) -> Callable[[Any], Any]:
    """The lines of `noise.mix` in the compiler's operations, which compute a repeated value once."""

    def number(value: int) -> Any:
        return ops.constant(value, torch.int32)

    def folded(v: Any, places: int, mask: int) -> Any:
        high = ops.bitwise_and(ops.bitwise_right_shift(v, number(places)), number(mask))
        return ops.bitwise_xor(v, high)

    def mix(v: Any) -> Any:
        v = ops.mul(folded(v, 16, 0xFFFF), number(0x7FEB352D))
        v = ops.mul(folded(v, 15, 0x1FFFF), number(0x846CA68B - (1 << 32)))
        return folded(v, 16, 0xFFFF)

    return mix
