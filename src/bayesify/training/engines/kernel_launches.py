"""Launches of the Triton kernels (`kernels.py`) for the first and the last stage of a step (`staged_step.py`).

For a small network the launches cost most of the time, so one launch serves up to sixteen tensors. Where the data and
the counters are on the GPU (`staged_graphs.py`), one more launch fetches the batch and makes the keys, and the last one
moves the counter.

Used for scale mixtures and Gaussians with SGD or Adam, and only after the results have been compared with those of the
plain stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from bayesify.priors.densities import Normal, ScaleMixture
from bayesify.training.engines import kernels
from bayesify.training.engines.updates import AdamRule, SGDRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bayesify.training.engines.graphs import GraphedSteps
    from bayesify.training.engines.staged_step import Stages

_BLOCK = 512  # pairs for each program
_WARPS = 4
_PLACES = 16  # tensors that one launch serves
_WIDE = 1024  # numbers that a program copies at once


def suits(stages: Stages) -> bool:
    """Whether the kernels support the prior, the optimiser and the precision of these stages."""
    rule = stages.rule
    known = type(stages.family) in {Normal, ScaleMixture} and type(rule) in {SGDRule, AdamRule}
    plain = known and not rule.group["weight_decay"] and not rule.group.get("momentum")
    return plain and stages.stack.parameters[0].dtype == torch.float32


def make_keys(seeds: Tensor, step: Tensor, draws: int) -> Tensor:
    """Keys `[networks, draws, 2]` of a step's draws, as `noise.keys` makes them for each seed."""
    found = torch.empty(len(seeds), draws, 2, dtype=torch.int32, device=seeds.device)
    kernels.make_keys[(1,)](seeds, step, found, len(seeds), draws, _WIDE)
    return found


def fetch(stages: Stages, steps: GraphedSteps, size: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """The batch that the counter points to, the keys of its step and its row of numbers."""
    x, y, seeds = steps.examples.x, steps.examples.y, stages.stack.seeds
    keys = torch.empty(len(seeds), stages.draws, 2, dtype=torch.int32, device=y.device)
    leaves = [x.new_empty(size, *x.shape[1:], dtype=stages.dtype), y.new_empty(size, *y.shape[1:])]
    numbers = torch.empty_like(steps.numbers[0])
    widths = [leaf.numel() // size for leaf in leaves]
    kernels.fetch[(size + 1, triton.cdiv(max(widths), _WIDE))](
        x,
        y,
        steps.order,
        steps.numbers,
        seeds,
        steps.first_step,
        steps.batch,
        *leaves,
        numbers,
        keys,
        steps.batch_size,
        steps.order.shape[1],
        len(steps.numbers),
        *widths,
        size,
        *numbers.shape,
        stages.draws,
        _WIDE,
    )
    return leaves, keys, numbers


def sample(stages: Stages, state: Sequence[Tensor], keys: Tensor) -> list[Tensor]:
    """Draws `[networks * draws, n]` of every tensor."""
    mean, rho = state[:2]
    networks, draws = keys.shape[:2]
    sizes = [place.shape.numel() for place in stages.network.places]
    theta = [torch.empty(networks * draws, size, dtype=stages.dtype, device=mean.device) for size in sizes]
    for part, starts, programs in _by_launch(stages):
        grid = (programs[-1], networks)
        kernels.sample[grid](
            mean, rho, tuple(theta[part]), keys, mean.stride(0), starts, programs, draws, _BLOCK, num_warps=_WARPS
        )
    return theta


def update(
    stages: Stages,
    state: Sequence[Tensor],
    keys: Tensor,
    numbers: Tensor,
    batch: int,
    gradients: Sequence[Tensor],
    counted: tuple[Tensor, Tensor, Tensor] | None = None,
) -> None:
    """Update means, rhos and the optimiser's state in place.

    With `counted = (nll, total, counter)` the last launch also adds `nll * batch` to the total and one to the counter.
    """
    networks, draws = keys.shape[:2]
    mean, rho, *slots = state
    adam = isinstance(stages.rule, AdamRule)
    priors = stages.stack.numbers
    for part, starts, programs in _by_launch(stages):
        count = counted if part.stop >= len(gradients) else None
        kernels.update[(programs[-1], networks)](
            mean,
            rho,
            *(slots if adam else [mean] * 4),
            tuple(gradients[part]),
            keys,
            priors,
            numbers,
            *(count or (mean,) * 3),
            batch,
            priors.shape[1],
            numbers.shape[1],
            *(stages.rule.group["betas"] if adam else (0.0, 0.0)),
            stages.rule.group["eps"] if adam else 0.0,
            mean.stride(0),
            starts,
            programs,
            draws,
            isinstance(stages.family, ScaleMixture),
            adam,
            count is not None,
            _BLOCK,
            num_warps=_WARPS,
        )


def _by_launch(stages: Stages) -> Iterator[tuple[slice, tuple[int, ...], tuple[int, ...]]]:
    """For each launch: its tensors, where they start and the last one stops, and the first program of each tensor."""
    places = stages.network.places
    for begin in range(0, len(places), _PLACES):
        own = places[begin : begin + _PLACES]
        programs = [0]
        for place in own:
            blocks = triton.cdiv(place.stop, 32) - place.start // 32
            programs.append(programs[-1] + triton.cdiv(blocks * 16, _BLOCK))
        yield slice(begin, begin + _PLACES), (*(place.start for place in own), own[-1].stop), tuple(programs)
