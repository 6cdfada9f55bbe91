"""Which weights of a network autocast runs in lower precision, in runs that can be cast together.

Autocast casts the weights of every layer by themselves, in each pass: two small operations for each tensor. Neighbours
in the flat vector are cast as one. The values are those of autocast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from bayesify.functional.layout import Place

if TYPE_CHECKING:
    from bayesify.functional.network import Network
    from bayesify.functional.tracing import Trace

# The layers whose weights autocast makes bfloat16.
CAST_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Products on a GPU are fast where a matrix starts at a multiple of 16 bytes, which are eight numbers.
_ALIGNED = 8


def lower_runs(network: Network, trace: Trace) -> list[tuple[list[Place], bool]]:
    """All tensors in order, in runs: those that only layers of known types read, once in a pass, are cast together.

    Args:
        network: the network.
        trace: what its first batch revealed.

    Returns:
        The places of each run, and whether it is cast; what is not cast is a run for itself.

    """
    runs: list[tuple[list[Place], bool]] = []
    for place in network.places:
        suits = _suits(network, trace, place)
        if suits and runs and runs[-1][1] and (place.start - runs[-1][0][0].start) % _ALIGNED == 0:
            runs[-1][0].append(place)
        else:
            runs.append(([place], suits))
    return runs


def _suits(network: Network, trace: Trace, place: Place) -> bool:
    owner, _, name = place.name.rpartition(".")
    use = trace.layers.get(owner)
    known = type(network.template.get_submodule(owner)) in CAST_LAYERS and name in {"weight", "bias"}
    return known and place.dtype == torch.float32 and use is not None and use.calls == 1 and not use.read_elsewhere
