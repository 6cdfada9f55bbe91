"""Histograms of the weights during training: one for each large tensor, at some of the epochs.

They show what the optimiser moves: the means of a posterior, the weights of every member of an ensemble. The
histograms of an epoch take a few kilobytes, and about 40 epochs have them, so a history stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from bayesify.training.trainable import Trainable

EPOCHS_SHOWN, BINS, LARGEST_TENSORS = 40, 50, 8
# This share of the weights on either side is left out: outliers would stretch the bins.
TAIL = 1e-3
_MOST_VALUES = 50_000


def due(epoch: int, epochs: int) -> bool:
    """Whether an epoch has histograms: the first, the last, and evenly spaced ones between them.

    Args:
        epoch: number of the epoch, counted from one.
        epochs: length of the whole training.

    """
    return epoch in {1, epochs} or epoch % -(-epochs // EPOCHS_SHOWN) == 0


def weight_histograms(method: Trainable) -> dict[str, dict[str, Any]]:
    """Histograms of the largest weight tensors; biases are left out.

    Args:
        method: the method in training.

    Returns:
        By name of the tensor: `counts` in equal bins from `low` to `high`, out of `of` weights.

    """
    trained = _trained_weights(method)
    if trained is None:
        return {}
    places = [place for place in method.network.places if "bias" not in place.name.rpartition(".")[2]]
    largest = sorted(places or method.network.places, key=lambda place: place.start - place.stop)[:LARGEST_TENSORS]
    shown = sorted(largest, key=lambda place: place.start)
    return {place.name: _histogram(trained[:, place.start : place.stop]) for place in shown}


def _trained_weights(method: Trainable) -> Tensor | None:
    """The first parameter that holds every weight, as `[members, P]`; None where a method has no such parameter."""
    for parameter in method.parameters():
        if parameter.dim() in {1, 2} and parameter.shape[-1] == method.network.size:
            return parameter.detach().reshape(-1, method.network.size)
    return None


def _histogram(weights: Tensor) -> dict[str, Any]:
    # On the CPU: counting on an accelerator has no deterministic algorithm for floating point.
    values = weights.reshape(-1)
    values = values[:: -(-values.numel() // _MOST_VALUES)]
    finite: Any = values.double().cpu().numpy()
    finite = finite[np.isfinite(finite)]
    if len(finite) == 0:
        return {"low": 0.0, "high": 0.0, "counts": [0] * BINS, "of": 0}
    low, high = (float(edge) for edge in np.quantile(finite, (TAIL, 1 - TAIL)))
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, _ = np.histogram(finite, BINS, (low, high))
    return {"low": low, "high": high, "counts": counts.tolist(), "of": len(finite)}
