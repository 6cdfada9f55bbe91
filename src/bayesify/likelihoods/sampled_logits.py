"""Softmax of normal logits by samples: the mean (log) probability of a label, with its gradient in the same pass.

With a table of normals `z_s`, logits `m + std * z_s`, probabilities `p_s = softmax` and labels y, the two means

    expected       mean_s log p_s(y)            w_s = 1 / S
    log_expected   log mean_s p_s(y)            w_s = p_s(y) / sum p_s(y)

have closed gradients, `sum_s w_s (1[c = y] - p_s(c))` by `m_c`, and the same times `z_s(c)` by `std_c`. So samples are
made and used for value and gradient a few inputs at a time, and are not kept in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

# Sampled logits in memory at once: on a CPU few enough for the cache.
_BLOCK_ON_CPU, _BLOCK = 1 << 18, 1 << 24
# With more classes than this, a compiled loop over samples needs more registers than a processor has.
_UNROLLED = 32
_LOG2_E = 1.0 / math.log(2.0)
# 2^f for f from 0 to 1 to a relative 1.1e-7 (interpolation at Chebyshev's points), by powers of f.
_POWER_OF_TWO = (0.9999998984, 0.6931544897, 0.2401418182, 0.05586033708, 0.008949590423, 0.001893754058)


def log_mean(mean: Tensor, std: Tensor, labels: Tensor, table: Tensor, *, of_logs: bool) -> Tensor:
    """`log_expected`, or `expected` with `of_logs`, `[draws, positions]`.

    Args:
        mean: of the logits, `[draws, positions, classes]`.
        std: their standard deviations, likewise; a minus sign mirrors the noise.
        labels: `[positions]`.
        table: standard normals `[draws, classes, samples]`, used by all positions.
        of_logs: whether logarithms are averaged or probabilities.

    """
    if torch.is_grad_enabled():
        differentiable: Callable[..., tuple[Tensor, ...]] = _LogMean.apply
        return differentiable(mean, std, labels, table, of_logs)[0]
    return _log_mean(mean, std, labels, table, of_logs, slopes=False)[0]


def mean_softmax(mean: Tensor, std: Tensor, table: Tensor) -> Tensor:
    """`mean_s softmax(m + std z_s)`, `[draws, positions, classes]`."""
    rows = []
    for moments, normals in zip(_class_first(mean, std), table, strict=True):
        pieces = [torch.empty_like(moments[0])[:, :0]]
        for block in _blocks(mean, normals):
            weights = _logits(moments[:, :, block], normals)
            weights = weights.sub_(weights.amax(0)).exp_()
            pieces.append(weights.div_(weights.sum(0)).mean(-1))
        rows.append(torch.cat(pieces, 1).mT)
    return torch.stack(rows)


class _LogMean(torch.autograd.Function):
    """The value, with the gradient that is computed in the same pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, std: Tensor, labels: Tensor, table: Tensor, of_logs: bool) -> tuple[Tensor, ...]:
        return _log_mean(mean, std, labels, table, of_logs, slopes=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        by_mean, by_std = output[1:]
        ctx.mark_non_differentiable(by_mean, by_std)
        ctx.save_for_backward(by_mean, by_std, inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_mean, by_std, mean, std = ctx.saved_tensors
        gradient, scaled = gradients[0].unsqueeze(-1), _first_derivative()
        return scaled(gradient, by_mean, mean), scaled(gradient, by_std, std), None, None, None


class _FirstDerivative(torch.autograd.Function):
    """A gradient that raises an error if it is differentiated again: second derivatives are not computed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, slope: Tensor, _: Tensor) -> Tensor:
        return gradient * slope

    @staticmethod
    def setup_context(*_: Any) -> None:
        pass

    @staticmethod
    def backward(*_: Any) -> tuple[None, None, None]:
        raise RuntimeError("GaussianLogits has first derivatives only: use another likelihood for second ones")


def _first_derivative() -> Callable[..., Tensor]:
    return _FirstDerivative.apply


def _log_mean(
    mean: Tensor, std: Tensor, labels: Tensor, table: Tensor, of_logs: bool, *, slopes: bool
) -> tuple[Tensor, ...]:
    if slopes and mean.shape[2] <= _UNROLLED and _is_traced(mean):
        return _in_one_loop(mean, std, labels, table, of_logs)
    return _in_blocks(mean, std, labels, table, of_logs, slopes)


def _in_blocks(
    mean: Tensor, std: Tensor, labels: Tensor, table: Tensor, of_logs: bool, slopes: bool
) -> tuple[Tensor, ...]:
    """A few positions at a time, every operation in place on logits `[classes, positions, samples]`."""
    samples = table.shape[-1]
    draws: list[tuple[Tensor, ...]] = []
    for moments, normals in zip(_class_first(mean, std), table, strict=True):
        pieces: list[tuple[Tensor, ...]] = []
        for block in _blocks(mean, normals):
            chosen = labels[block]
            logits = _logits(moments[:, :, block], normals)
            logits = logits.sub_(logits.amax(0))
            of_label = logits.gather(0, chosen.view(1, -1, 1).expand(1, -1, samples)).squeeze(0)
            weights = logits.exp_()
            total = weights.sum(0)
            log_probs = of_label - total.log()
            if of_logs:
                value, shares = log_probs.mean(-1), torch.full_like(log_probs, 1.0 / samples)
            else:
                whole = log_probs.logsumexp(-1, keepdim=True)
                value, shares = whole.squeeze(-1) - math.log(samples), torch.exp(log_probs - whole)
            if not slopes:
                pieces.append((value,))
                continue
            probs = weights.mul_(shares / total)
            hit = torch.nn.functional.one_hot(chosen, mean.shape[2]).to(mean.dtype).mT
            by_mean = hit - probs.sum(-1)
            by_std = hit * (shares * normals[chosen]).sum(-1) - probs.mul_(normals.unsqueeze(1)).sum(-1)
            pieces.append((value, by_mean, by_std))
        draws.append(tuple(torch.cat(tensors, -1) for tensors in zip(*pieces, strict=True)))
    value, *gradients = (torch.stack(tensors) for tensors in zip(*draws, strict=True))
    return (value, *(gradient.mT for gradient in gradients))


def _in_one_loop(mean: Tensor, std: Tensor, labels: Tensor, table: Tensor, of_logs: bool) -> tuple[Tensor, ...]:
    """The same class by class: a compiler turns it into one loop over samples, with everything in registers.

    Logits are in units of log 2, because powers of two are cheaper than powers of e.
    """
    mean, std, table = _in_memory(mean * _LOG2_E), _in_memory(std * _LOG2_E), _in_memory(table)
    noise = [row.unsqueeze(1) for row in table.unbind(1)]
    index = labels.view(1, -1, 1).expand(mean.shape[0], -1, 1)
    mean_of_label, std_of_label = (moment.gather(-1, index) for moment in (mean, std))
    noise_of_label = table[:, labels]

    def logits() -> list[Tensor]:
        moments = zip(mean.unbind(-1), std.unbind(-1), noise, strict=True)
        return [m.unsqueeze(-1) + s.unsqueeze(-1) * z for m, s, z in moments]

    # The largest logit of each sample, and the largest distance of the label's logit from it, are subtracted before any
    # exponential: nothing overflows, and the largest term does not underflow.
    first, *others = logits()
    for more in others:
        first = torch.maximum(first, more)
    top = _in_memory(first)
    of_label = torch.addcmul(mean_of_label, std_of_label, noise_of_label) - top
    best = of_label.amax(-1, keepdim=True)
    weights = [_power_of_two(logit - top) for logit in logits()]
    total = weights[0]
    for weight in weights[1:]:
        total = total + weight
    if of_logs:
        value, shares = (of_label / _LOG2_E - total.log()).mean(-1), torch.ones_like(total)
    else:
        shares = _power_of_two(of_label - best) / total
        value = best.squeeze(-1) / _LOG2_E + shares.mean(-1).log()
    whole = shares.sum(-1, keepdim=True)
    ratio = shares / total
    probs = [weight * ratio for weight in weights]
    by_mean = torch.stack([prob.sum(-1) for prob in probs], -1) / whole
    by_std = torch.stack([(prob * z).sum(-1) for prob, z in zip(probs, noise, strict=True)], -1) / whole
    hit = torch.nn.functional.one_hot(labels, mean.shape[2]).to(mean.dtype)
    return value, hit - by_mean, hit * ((shares * noise_of_label).sum(-1, keepdim=True) / whole) - by_std


def _power_of_two(t: Tensor) -> Tensor:
    """`2^t` for t up to zero: a polynomial of the fractional part, and the integer part as the exponent's bits.

    The exponential of a math library takes longer on a CPU. Results are at least 2^-125, because denormal numbers are
    slow.
    """
    if t.device.type != "cpu" or t.dtype != torch.float32:
        return torch.exp2(t)
    t = t.clamp(min=-125.0)
    whole = torch.floor(t)
    fraction = t - whole
    power = torch.full_like(t, _POWER_OF_TWO[-1])
    for coefficient in reversed(_POWER_OF_TWO[:-1]):
        power = power * fraction + coefficient
    return power * ((whole.to(torch.int32) + 127) << 23).view(torch.float32)


@torch.library.custom_op("bayesify::in_memory", mutates_args=())
def _in_memory(tensor: Tensor) -> Tensor:
    """A copy that is opaque to a compiler: it is computed once and read from memory, not again for every sample."""
    return tensor.clone(memory_format=torch.contiguous_format)


@_in_memory.register_fake
def _(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@_in_memory.register_vmap
def _(_: Any, axes: tuple[int | None], tensor: Tensor) -> tuple[Tensor, int | None]:
    return _in_memory(tensor), axes[0]


def _is_traced(tensor: Tensor) -> bool:
    return torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None or type(tensor) is not Tensor


def _class_first(mean: Tensor, std: Tensor) -> Tensor:
    """Means and standard deviations as `[draws, 2, classes, positions]`."""
    return torch.stack((mean.mT, std.mT), 1)


def _logits(moments: Tensor, table: Tensor) -> Tensor:
    """`[classes, positions, samples]` from means and standard deviations `[2, classes, positions]`."""
    mean, std = moments.unsqueeze(-1)
    logits: Tensor = std * table.unsqueeze(1)
    return logits.add_(mean)


def _blocks(mean: Tensor, table: Tensor) -> list[slice]:
    largest = _BLOCK_ON_CPU if mean.device.type == "cpu" else _BLOCK
    step = max(1, largest // table.numel())
    return [slice(first, min(first + step, mean.shape[1])) for first in range(0, mean.shape[1], step)]
