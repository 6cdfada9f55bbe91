"""Members of an ensemble or chains of HMC trained apart, and put together again.

Members share nothing, so those of a slice are, to rounding, those of the whole ensemble. Chains of HMC adapt their step
size, mass matrix and trajectory length together; those of a slice do so among themselves and have a seed of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from bayesify.errors import at_least
from bayesify.methods.ensemble import Ensemble
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.method import Method
from bayesify.training.loop import History

# Far from the seeds that people give to runs which they compare.
_BETWEEN_SEEDS = 1_000_003


def bounds(method: Method, slices: int) -> list[range]:
    """The numbers of the members or chains of each slice, as even as can be.

    Args:
        method: the whole ensemble or all chains.
        slices: how many; no more than there are members or chains are made.

    Returns:
        A range for each slice.

    Raises:
        ValueError: the method cannot be cut.

    """
    slices = at_least("slices", slices, 1)
    if method.name == Ensemble.name and isinstance(method, Ensemble):
        if any(True for _ in method.likelihood.parameters()):
            raise ValueError(
                f"the members share the parameters of {method.likelihood}, so they cannot be trained apart: give the "
                "noise as a number, as a prior such as gaussian:half-cauchy(1), or as gaussian:heteroscedastic"
            )
        total = method.members
    elif isinstance(method, HMC):
        total = method.chains
    else:
        raise ValueError(
            f"{method.name} is one training: slices are for the members of ensemble and the chains of hmc; torchrun "
            "divides the batches of one training among processes (docs/scale.md)"
        )
    count = min(slices, total)
    starts = [number * total // count for number in range(count + 1)]
    return [range(first, last) for first, last in pairwise(starts)]


def seed_of(method: Method, seed: int, index: int) -> int:
    """The seed of training of a slice: members keep the one of the ensemble.

    Args:
        method: the whole ensemble or all chains.
        seed: of the whole.
        index: of the slice.

    Returns:
        The seed.

    """
    return seed if isinstance(method, Ensemble) else seed + _BETWEEN_SEEDS * index


def join(whole: Method, slices: Sequence[Method]) -> None:
    """Put fitted slices together.

    Args:
        whole: the untrained method; it gets the weights or draws of the slices, their plan and their history.
        slices: fitted methods, in the order of `bounds`.

    """
    if isinstance(whole, Ensemble):
        _join_members(whole, [one for one in slices if isinstance(one, Ensemble)])
    elif isinstance(whole, HMC):
        _join_chains(whole, [one for one in slices if isinstance(one, HMC)])
    first = slices[0]
    whole.plan, whole.seed = first.plan, first.seed
    whole.input_shapes, whole.input_names = first.input_shapes, first.input_names
    whole.column_names = first.column_names
    whole.history = _history(whole, slices)


@torch.no_grad()
def _join_members(whole: Ensemble, slices: Sequence[Ensemble]) -> None:
    whole.theta.copy_(torch.cat([one.theta for one in slices]))
    if whole.log_noise is not None:
        whole.log_noise.copy_(torch.cat([one.log_noise for one in slices if one.log_noise is not None]))
    for name in whole.member_buffers:
        whole.get_buffer(name).copy_(torch.cat([one.get_buffer(name) for one in slices]))
    if whole.bootstrap:
        whole.get_buffer("resampled").copy_(slices[0].get_buffer("resampled"))


@torch.no_grad()
def _join_chains(whole: HMC, slices: Sequence[HMC]) -> None:
    stores = [one.store for one in slices]
    whole.position.copy_(torch.cat([one.position for one in slices]))
    whole.rest.copy_(slices[0].rest)
    whole.inputs = slices[0].inputs.clone()
    whole.learned.copy_(torch.stack([one.learned for one in slices]).mean(0))
    whole.store.make_room(stores[0].room)
    for name in ("draws", "log_scales", "statistics"):
        by_draw = [store.get_buffer(name).unflatten(0, (store.room, store.chains)) for store in stores]
        whole.store.get_buffer(name).copy_(torch.cat(by_draw, 1).flatten(0, 1))
    leapfrogs = torch.stack([store.leapfrogs for store in stores]).double().mean(0)
    whole.store.leapfrogs.copy_(leapfrogs.round())
    whole.store.counts.copy_(torch.tensor([stores[0].drawn, sum(store.divergences for store in stores)]))


def _history(whole: Method, slices: Sequence[Method]) -> History:
    """Means over the members or chains; divergences and seconds of all are added."""
    sizes = [one.members if isinstance(one, Ensemble) else getattr(one, "chains", 1) for one in slices]
    records = []
    for same in zip(*(one.history.records for one in slices), strict=True):
        record: dict[str, Any] = dict(same[0])
        for name, value in record.items():
            if isinstance(value, float):
                weighted = sum(size * float(one[name]) for size, one in zip(sizes, same, strict=True))
                record[name] = weighted / sum(sizes)
        if "leapfrogs" in record:
            record["leapfrogs"] = round(sum(one["leapfrogs"] for one in same) / len(same))
        for name in {"seconds", "divergences"} & set(record):
            record[name] = sum(one[name] for one in same)
        records.append(record)
    return History(records, "", whole.name)
