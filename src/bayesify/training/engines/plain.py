"""One training step by autograd and torch's optimiser: for what cannot be compiled or is not worth it.

    gradient of a batch of B examples = sum over its parts of B_j / B * gradient of part j

A part of B_j examples has the share B_j / B of the step's KL, so the KL is counted once. Its examples have the noise
that they have in the whole batch. Only layers that mix the examples of a batch (batch normalisation) see the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify import noise
from bayesify.distributed import active
from bayesify.errors import first_line
from bayesify.functional.recomputing import OWN_CHECKPOINTS
from bayesify.training.batches import Batch, take
from bayesify.training.engines.data_parallel import add_parts, part_of_gradient
from bayesify.training.recovery import GradientMemoryError, is_out_of_memory
from bayesify.training.trainable import Objective

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.training.layer_rates import LayerRates
    from bayesify.training.plan import Plan
    from bayesify.training.trainable import Trainable


def plain_step(
    method: Trainable,
    optimizer: Optimizer,
    plan: Plan,
    batches: list[Batch],
    step: int,
    share: float,
    layer_rates: LayerRates | None = None,
) -> Tensor:
    """Make one step.

    Args:
        method: the method in training.
        optimizer: its optimiser.
        plan: draws, parts of a batch and the largest norm of the gradient.
        batches: one batch for each member.
        step: number of the step, which keys its noise.
        share: weight of the KL.
        layer_rates: factors of the learning rate by layer.

    Returns:
        The batch's mean NLL, summed over members.

    Raises:
        GradientMemoryError: the gradient needs more memory than there is; nothing has changed.

    """
    optimizer.zero_grad(set_to_none=True)
    group = active()
    with _explained():
        objective = _gradient(method, plan, batches, step, share)
    if group is not None:
        objective = add_parts(group, method, objective)
        method.note_objective(objective)
    if plan.clip_norm is not None:
        method.clip_gradients(plan.clip_norm)
    before = None if layer_rates is None else layer_rates.before()
    optimizer.step()
    if layer_rates is not None and before is not None:
        layer_rates.scale(before)
    method.absorb(objective)
    return objective.nll.detach()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        if not re.search(r"\bmeta\b", str(problem)):
            raise
        raise TypeError(OWN_CHECKPOINTS) from problem


def _gradient(method: Trainable, plan: Plan, batches: list[Batch], step: int, share: float) -> Objective:
    parts = plan.accumulate
    try:
        if parts == 1:
            return _backward(method, batches, step=step, share=share, draws=plan.draws)
        return _in_parts(method, plan, batches, step, share)
    except (RuntimeError, MemoryError) as problem:
        # Between parts, running statistics have changed. Of several processes only one may be out of memory.
        changed = parts > 1 and bool(method.network.buffer_names)
        if not is_out_of_memory(problem) or changed or active() is not None:
            raise
        raise GradientMemoryError(first_line(problem)) from problem


def _backward(method: Trainable, batches: list[Batch], *, step: int, share: float, draws: int) -> Objective:
    """The objective with its gradients: of this process's part of the batch, where there are several processes."""
    group = active()
    if group is None:
        return method.backward(batches, step=step, share=share, draws=draws)
    objective = part_of_gradient(group, method, method.backward, batches, step=step, share=share, draws=draws)
    method.note_batches(batches, step=step, share=share, draws=draws)
    return objective


def _in_parts(method: Trainable, plan: Plan, batches: list[Batch], step: int, share: float) -> Objective:
    """The objective of a batch from its parts, with the gradients in `.grad` of the parameters."""
    total = batches[0][1].shape[0]
    parameters = list(method.parameters())
    sums: list[Tensor | None] = [None] * len(parameters)
    nll = torch.zeros((), dtype=torch.float64, device=batches[0][1].device)
    last: Objective | None = None
    for rows in torch.arange(total).tensor_split(min(plan.accumulate, total)):
        first, size = int(rows[0]), len(rows)
        part = [(take(x, slice(first, first + size)), y[first : first + size]) for x, y in batches]
        if last is not None:
            # The next part goes on from the running statistics of this one.
            method.update_statistics(last)
        for parameter in parameters:
            parameter.grad = None
        with noise.part_of_batch(first, size, total):
            last = _backward(method, part, step=step, share=share * size / total, draws=plan.draws)
        nll += last.nll.detach().double() * (size / total)
        for number, parameter in enumerate(parameters):
            if parameter.grad is not None:
                weighted = parameter.grad * (size / total)
                before = sums[number]
                sums[number] = weighted if before is None else before.add_(weighted)
    for parameter, gradient in zip(parameters, sums, strict=True):
        parameter.grad = gradient
    assert last is not None
    return Objective(last.loss.detach(), nll.to(last.nll.dtype), last.kl.detach(), last.buffers)
