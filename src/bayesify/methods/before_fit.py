"""Warnings before training: a network that ends in a softmax or sigmoid, targets far from unit scale, one example.

None is an error, since training runs and returns numbers. Each makes a fit much worse than it could be, and each has a
cure of one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.functional.inputs import count
from bayesify.likelihoods import Bernoulli, LogNormal
from bayesify.training.batches import take, to_device
from bayesify.training.warnings import ends_in, single_example, targets_unscaled

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting

_ROWS = 32
# Logits leave the range of probabilities when all weights change sign or grow; probabilities stay in it.
_FACTORS = (1.0, -1.0, 7.0)
_ROUNDING = 1e-3


def look_at(method: Fitting, x: Any, y: Tensor, examples: int) -> dict[str, str]:
    """Warnings about a network and its training data, before training.

    Args:
        method: the method, whose network takes the data.
        x: inputs of a first batch.
        y: targets, all of them where they are in memory.
        examples: how many there are.

    Returns:
        Sentences by kind; empty where there is nothing to warn about.

    """
    found = {"ends_in_probabilities": _ends_in(method, x), "targets_unscaled": _scale_of(method, y)}
    found["single_example"] = single_example(examples)
    return {kind: text for kind, text in found.items() if text is not None}


def _ends_in(method: Fitting, x: Any) -> str | None:
    likelihood = method.likelihood
    if likelihood.kind != "classification":
        return None
    rows = to_device(take(x, slice(min(_ROWS, count(x)))), method.network.device)
    try:
        with torch.no_grad():
            outputs = [
                method.network.call(method.network.unflatten(factor * method.network.initial), rows)[0].double()
                for factor in _FACTORS
            ]
    except Exception:  # noqa: BLE001 -- a network that fails here fails with its own message in training
        return None
    if not all(bool(((part >= 0) & (part <= 1 + _ROUNDING)).all()) for part in outputs):
        return None
    if isinstance(likelihood, Bernoulli):
        return ends_in("a sigmoid", likelihood.name)
    for axis in {1, outputs[0].dim() - 1} - {0}:
        if all(part.shape[axis] > 1 and bool(((part.sum(axis) - 1).abs() < _ROUNDING).all()) for part in outputs):
            return ends_in("a softmax", likelihood.name)
    return ends_in("a sigmoid", likelihood.name)


def _scale_of(method: Fitting, y: Tensor) -> str | None:
    likelihood: Any = method.likelihood
    if not hasattr(likelihood, "location") or not hasattr(likelihood, "scale") or y.shape[0] < 2:
        return None
    numbers = likelihood.transformed(y.double()).reshape(y.shape[0], -1)
    location, scale = (
        torch.as_tensor(part, dtype=torch.float64).reshape(-1) for part in (likelihood.location, likelihood.scale)
    )
    if {len(location), len(scale)} - {1, numbers.shape[1]}:
        return None
    standardised = (numbers - location.to(numbers.device)) / scale.to(numbers.device)
    means, deviations = standardised.mean(0), standardised.std(0)
    of = "y.log()" if isinstance(likelihood, LogNormal) else "y"
    for mean, deviation in zip(means.tolist(), deviations.tolist(), strict=True):
        text = targets_unscaled(mean, deviation, type(likelihood).__name__, of) if deviation > 0 else None
        if text is not None:
            return text
    return None
