"""Dropout masks as tensors: recorded once for a draw, then used for batches of any size.

A mask that all inputs of a draw share does not depend on the batch size. So it can be a constant of an exported graph,
which has no noise function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bayesify.functional.dropout import KeyedDropout, Site


class RecordedDropout(KeyedDropout):
    """Keyed dropout that keeps its masks, one for each site, in `masks`."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.masks: list[Tensor] = []

    def drawn_mask(self, number: int, shape: list[int], rate: float) -> Tensor:
        """Draw a mask and keep it.

        Args:
            number: of the site.
            shape: of the mask.
            rate: probability that an entry is dropped.

        Returns:
            The mask.

        """
        mask = super().drawn_mask(number, shape, rate)
        self.masks.append(mask)
        return mask


class FixedDropout(KeyedDropout):
    """Dropout with given masks.

    Args:
        masks: the masks in the order of the sites, as `RecordedDropout` keeps them.
        sites: the sites of the network, from its trace.
        inputs: how many inputs share each mask.
        rate: replaces the rate of every site.
        always: drop also where the network is in evaluation mode.

    """

    def __init__(
        self, masks: Sequence[Tensor], sites: Sequence[Site] | None, *, inputs: Any, rate: float | None, always: bool
    ) -> None:
        super().__init__(None, sites, inputs=inputs, rate=rate, always=always)
        self.given = masks

    def drawn_mask(self, number: int, shape: list[int], rate: float) -> Tensor:
        """The mask that was given for a site.

        Args:
            number: of the site.
            shape: not used: a given mask has its shape.
            rate: not used.

        Returns:
            The mask.

        """
        return self.given[number]
