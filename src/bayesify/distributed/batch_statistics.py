"""Batch normalisation over the batch of all processes.

    mean = sum of n_r mean_r / n        variance = sum of n_r (variance_r + mean_r^2) / n - mean^2, centred first

Every process has its part of the batch. The sums are exchanged in the forward pass, and the gradients of the sums in
the backward pass, so that outputs, gradients and running statistics are those of one process. Torch's SyncBatchNorm
does this on CUDA alone, and for parts of equal size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bayesify.distributed.group import Group


@contextmanager
def global_batch_statistics(group: Group, rows: int, total: int, *, counted: bool = True) -> Iterator[None]:
    """Inside this context batch normalisation in training mode uses the statistics of all processes' parts.

    Args:
        group: the processes.
        rows: inputs that this process has. The gradient of a step is the sum of the processes' gradients, each times
            its share of the batch.
        total: inputs of the batch.
        counted: False where the inputs of this process are no part of the batch.

    Yields:
        Nothing.

    """
    with _GlobalStatistics(group, rows, total, counted=counted):
        yield


class _GlobalStatistics(TorchFunctionMode):
    def __init__(self, group: Group, rows: int, total: int, *, counted: bool) -> None:
        super().__init__()
        self.group, self.rows, self.total = group, rows, total
        self.share = rows / total if counted else 0.0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        return func(*args, **kwargs)

    def _batch_norm(
        self,
        input: Tensor,  # noqa: A002 -- torch's own argument names
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        others = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1 if axis != 1 else -1 for axis in range(input.dim())]
        x = input.float() if input.element_size() < 4 else input
        counted = 1.0 if self.share > 0 else 0.0
        # An input has the same number of positions in every process.
        total = x.numel() / x.shape[1] / self.rows * self.total
        mean = self._summed(x.sum(others) * counted) / total
        centred = x - mean.view(shape)
        variance = self._summed(centred.square().sum(others) * counted) / total
        if running_mean is not None and running_var is not None:
            with torch.no_grad():
                unbiased = variance.detach() * (total / max(total - 1, 1))
                running_mean.lerp_(mean.detach().to(running_mean.dtype), momentum)
                running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        result = centred * torch.rsqrt(variance + eps).view(shape)
        if weight is not None:
            result = result * weight.to(result.dtype).view(shape)
        if bias is not None:
            result = result + bias.to(result.dtype).view(shape)
        return result.to(input.dtype)

    def _summed(self, part: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(part, self.group, self.share)  # type: ignore[no-untyped-call]
        return total


class _Sum(torch.autograd.Function):
    """The sum over the processes. The loss of all is the sum of their losses, each times its share."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group, share: float) -> Tensor:
        ctx.group, ctx.share = group, share
        total = part.detach().clone()
        group.sum([total])
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        # Gradients of parameters are multiplied by the share after the pass: here it is divided out again.
        total = slopes[0] * ctx.share
        ctx.group.sum([total])
        return (total / ctx.share if ctx.share > 0 else torch.zeros_like(total)), None, None
