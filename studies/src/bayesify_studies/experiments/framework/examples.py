"""As many examples as a preset says."""

from __future__ import annotations

from torch import Tensor

Pair = tuple[Tensor, Tensor]


def first(pair: Pair, most: int | None) -> Pair:
    """The first inputs and targets, or all of them."""
    return pair[0][:most], pair[1][:most]
