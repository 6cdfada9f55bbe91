"""Where the weights are as training goes on: a histogram for each large tensor, at some of the epochs.

What is recorded is what the optimiser moves: the means of a posterior, the weights of every member of an ensemble. A
snapshot is a few kilobytes and there are at most about 40, so that a history stays small however long training takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from bayesify.training.trainable import Trainable

SNAPSHOTS, BINS, LARGEST_TENSORS = 40, 50, 8
# The farthest thousandth on either side would otherwise stretch the bins.
TAIL = 1e-3
_MOST_VALUES = 50_000


def due(epoch: int, epochs: int) -> bool:
    """Whether an epoch is one to remember: the first, the last, and evenly between them, from the plan alone."""
    return epoch in {1, epochs} or epoch % -(-epochs // SNAPSHOTS) == 0


def weight_histograms(method: Trainable) -> dict[str, dict[str, Any]]:
    """By name of the tensor: `counts` in equal bins from `low` to `high`, out of `of` weights; biases are left out."""
    moved = _moved(method)
    if moved is None:
        return {}
    places = [place for place in method.network.places if "bias" not in place.name.rpartition(".")[2]]
    largest = sorted(places or method.network.places, key=lambda place: place.start - place.stop)[:LARGEST_TENSORS]
    shown = sorted(largest, key=lambda place: place.start)
    return {place.name: _histogram(moved[:, place.start : place.stop]) for place in shown}


def _moved(method: Trainable) -> Tensor | None:
    """The first parameter that holds every weight, as `[members, P]`; a method of another kind has no snapshots."""
    for parameter in method.parameters():
        if parameter.dim() in {1, 2} and parameter.shape[-1] == method.network.size:
            return parameter.detach().reshape(-1, method.network.size)
    return None


def _histogram(weights: Tensor) -> dict[str, Any]:
    # On the CPU: counting on an accelerator has no deterministic algorithm for floating point.
    values = weights.reshape(-1)
    values = values[:: -(-values.numel() // _MOST_VALUES)]
    known: Any = values.double().cpu().numpy()
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return {"low": 0.0, "high": 0.0, "counts": [0] * BINS, "of": 0}
    low, high = (float(edge) for edge in np.quantile(known, (TAIL, 1 - TAIL)))
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, _ = np.histogram(known, BINS, (low, high))
    return {"low": low, "high": high, "counts": counts.tolist(), "of": len(known)}
