"""Whether a method can predict yet: what it still has to collect, and whether its weights have seen any data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import nn

from bayesify.functional.selection import owner_of

if TYPE_CHECKING:
    from bayesify.methods.method import Method


def collected(method: Method) -> str | None:
    """What a method has not collected yet and cannot predict without, as an error; None where nothing is missing.

    Without it every draw would be the same function, and the epistemic uncertainty zero.
    """
    missing = method.lacking()
    if missing is None:
        return None
    instead = "" if method.members > 1 or method.name == "hmc" else ", or predict(x, by='mean') for the point estimate"
    own_loop = "" if method.name == "hmc" else ", or finish(data) after a training loop of your own"
    return f"{method.name} has no {missing} yet, and so no uncertainty: call fit(data) first{own_loop}{instead}"


def untrained(method: Method) -> str | None:
    """A warning where no weight has changed since the method was made, and none was trained before; None otherwise."""
    if method.plan is not None or len(method.history) or method.weights_changed():
        return None
    posterior = getattr(method, "estimator", None) is not None
    if method.start == "given" and not posterior and not _looks_fresh(method):
        return None
    of_what = "posterior is where it started" if posterior else "weights are where they started"
    return (
        f"{method.name} predicts before it was fitted: its {of_what}, it has seen no data; call fit(data), or train it "
        "in a loop of your own"
    )


def _looks_fresh(method: Method) -> bool:
    """Whether the given weights are within the bounds of torch's initialisation, which training soon leaves.

    Linear and convolutional layers start uniform within 1 / sqrt(fan in).
    """
    network, judged = method.network, 0
    tensors = network.unflatten(network.initial)
    for place in network.places:
        owner = owner_of(place.name)
        layer = network.template.get_submodule(owner)
        if not isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) or not place.name.endswith("weight"):
            continue
        judged += 1
        bound = 1 / math.sqrt(math.prod(place.shape[1:]))
        if float(tensors[place.name].abs().max()) > bound * (1 + 1e-5):
            return False
    return judged > 0
