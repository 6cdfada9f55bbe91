"""Posterior samples in memory: whether there is room for them, and a random order to predict with."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesify import noise


def check_room(what: str, rows: int, size: int, dtype: torch.dtype, instead: str) -> None:
    """Refuse vectors that would not fit in memory, before any is allocated.

    Args:
        what: the method that would store them.
        rows: how many vectors.
        size: elements of each.
        dtype: of the elements.
        instead: what to change.

    """
    needed, available = 2 * rows * size * dtype.itemsize, _memory()
    if available is not None and needed > available:
        raise ValueError(
            f"{what} would store {rows:,} vectors of {size:,} weights, {needed / 2**30:.1f} GiB with the copy that "
            f"training restores when it diverges; this machine has {available / 2**30:.1f} GiB: {instead}"
        )


def shuffled(stored: int, draws: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Which of the stored samples the draws are: a random order under the seed, so that a few are a fair subset."""
    keys = noise.keys(seed, noise.Stream.PREDICTION, device=device)
    return noise.permutation(keys, stored)[0][list(draws)]


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
