"""Posterior samples that are held in memory: whether there is room for them, and a fair order to answer with."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesify import noise


def check_room(what: str, rows: int, size: int, dtype: torch.dtype, instead: str) -> None:
    """Refuse vectors that would not fit in memory, before any of it is asked for.

    Args:
        what: who would hold them.
        rows: how many vectors.
        size: elements of each.
        dtype: of the elements.
        instead: what to change.

    """
    needed, there = 2 * rows * size * dtype.itemsize, _memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{what} would hold {rows:,} vectors of {size:,} weights, {needed / 2**30:.1f} GiB with the copy that "
            f"training goes back to when it diverges; this machine has {there / 2**30:.1f} GiB: {instead}"
        )


def shuffled(held: int, draws: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Which of `held` samples the draws are: a random order under the seed, so that a few are a fair subset."""
    keys = noise.keys(seed, noise.Stream.PREDICTION, device=device)
    return noise.permutation(keys, held)[0][list(draws)]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
