"""The gradient of a step over several processes: each takes its part of the batch, and the parts are added.

    gradient of a batch of B examples = sum over processes r of B_r / B * gradient of the B_r examples of process r

A part of B_r examples has the share B_r / B of the step's KL, so the KL is counted once. Its examples have the noise
that they have in the whole batch, and batch normalisation sees the whole batch. The result is that of one process, up
to rounding. With draws of its own, each process draws other weights: the mean over the processes has less variance.
What is nonlinear in the noise (the curvature of IVON) is computed from a process's own gradient before it is added.

Where each process holds a part of the weights, the gradients of the drawn weights are added in the backward pass, and
the KL is that of the part: its gradient has no share, and its value is added.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.distributed import Group, global_batch_statistics
from bayesify.training.batches import Batch, Examples, IndexedExamples, take
from bayesify.training.trainable import Objective, shared_parameters

if TYPE_CHECKING:
    from bayesify.training.trainable import Trainable

Backward = Callable[..., Objective]


def part_of_gradient(
    group: Group, method: Trainable, backward: Backward, batches: list[Batch], *, step: int, share: float, draws: int
) -> Objective:
    """The part of the gradient of a batch that falls to this process, in `.grad`; `add_parts` makes it whole.

    Args:
        group: the processes.
        method: the method in training.
        backward: what computes the gradient of a batch, such as `method.backward`.
        batches: the whole batch, one for each member.
        step: number of the step, which keys its noise.
        share: weight of the KL of the whole batch.
        draws: weight draws to average over.

    Returns:
        The parts of the loss and of the NLL; the KL and the buffers of the whole batch.

    """
    total = batches[0][1].shape[0]
    first, size = group.slice(total)
    # A process without examples makes the same exchanges, with an example that counts nothing.
    first, rows = min(first, total - 1), max(size, 1)
    part = [(take(x, slice(first, first + rows)), y[first : first + rows]) for x, y in batches]
    before, whole = noise.place_in_batch(total)
    weight = size / total
    own = noise.own_draws(group.rank) if group.own_draws else nullcontext()
    statistics = global_batch_statistics(group, rows, total, counted=size > 0)
    if method.shard is not None:
        method.shard.weight = weight
    with noise.part_of_batch(before + first, rows, whole), statistics, own:
        objective = backward(part, step=step, share=share * rows / total, draws=draws)
    with torch.no_grad():
        for parameter in shared_parameters(method):
            if parameter.grad is not None:
                parameter.grad.mul_(weight)
    # Running statistics are means over examples: those of the whole batch are the weighted mean.
    running = {
        name: values.detach() * weight for name, values in objective.buffers.items() if values.is_floating_point()
    }
    if running:
        group.sum(list(running.values()))
    buffers, nll, kl = {**objective.buffers, **running}, objective.nll.detach() * weight, objective.kl.detach()
    loss = objective.loss.detach() * weight if method.shard is None else nll + share / total * kl
    return Objective(loss, nll, kl, buffers)


def add_parts(group: Group, method: Trainable, objective: Objective) -> Objective:
    """Add the processes' parts of a step, in one exchange.

    Args:
        group: the processes.
        method: the method in training; the gradients of its parameters become those of the whole batch.
        objective: what `part_of_gradient` returned.

    Returns:
        The objective of the whole batch.

    """
    gradients = [parameter.grad for parameter in shared_parameters(method) if parameter.grad is not None]
    like = gradients[0] if gradients else objective.nll
    stop = like.new_tensor(float(group.wants_to_stop()))
    loss, nll, kl = (value.to(like.dtype).clone() for value in (objective.loss, objective.nll, objective.kl))
    group.sum([*gradients, loss, nll, stop, *([] if method.shard is None else [kl])])
    group.stopping = bool(stop > 0)
    return Objective(loss, nll, kl, objective.buffers)


def whole_gradient(group: Group | None, method: Trainable, backward: Backward) -> Backward:
    """The same `backward`, over the processes: its gradients and its objective are those of the whole batch.

    Args:
        group: the processes; None changes nothing.
        method: the method in training.
        backward: what computes the gradient of a batch.

    Returns:
        A function with the same arguments.

    """
    if group is None:
        return backward

    def spread(batches: list[Batch], **settings: Any) -> Objective:
        return add_parts(group, method, part_of_gradient(group, method, backward, batches, **settings))

    return spread


def same_batches(group: Group, examples: Examples, batches: list[Batch]) -> None:
    """Refuse batches of a loader that differ between the processes.

    Args:
        group: the processes.
        examples: the data; examples that are read by number are the same everywhere.
        batches: one batch for each member.

    Raises:
        ValueError: the processes have different batches.

    """
    if isinstance(examples, IndexedExamples):
        return
    if not group.same(pytree.tree_leaves(batches[0])):
        raise ValueError(
            "the processes read different batches from their loaders: every process must read the whole batches in the "
            "same order (give the loader generator=torch.Generator().manual_seed(0), and no DistributedSampler)"
        )
