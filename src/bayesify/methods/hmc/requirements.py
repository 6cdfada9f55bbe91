"""Which networks have a posterior that chains can draw, and the inputs on which their agreement is judged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.functional.network import Network
from bayesify.training.batches import take

JUDGED_INPUTS = 50
GRID = 10


def check_network(network: Network, x: Any, method: str = "hmc") -> None:
    """Refuse a network that is not a function of its weights and inputs alone; `method` is named in errors."""
    if network.random_size == 0:
        raise ValueError(f"no weight is random: bayesian={network.bayesian!r} selects none, use bayesian='all'")
    trace = network.traced(take(x, slice(2)))
    if trace.problem is not None:
        raise ValueError(f"{method} cannot sample a network that could not be traced: {trace.problem}")
    if trace.updates_buffers or trace.buffers_in_evaluation:
        raise ValueError(
            f"{method} cannot sample a network with running statistics (batch normalisation): its function depends "
            "on the order of batches; use LayerNorm or GroupNorm"
        )
    if trace.dropout_sites:
        rates = ", ".join(f"{site.rate:g}" for site in trace.dropout_sites)
        raise ValueError(f"{method} cannot sample a network with dropout (rates {rates}): remove it, or use MCDropout")
    if trace.uses_generator or trace.keeps_state:
        raise ValueError(
            f"{method} cannot sample a network that draws random numbers or keeps a state: make it deterministic"
        )


def spread_inputs(x: Any, choose: bool) -> Tensor:
    """Inputs to judge convergence on: all of x, or with `choose` a part of it, and a grid around inputs of two numbers.

    Inputs that are not one tensor of numbers are not stored; `diagnose` needs `x=` then.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return torch.zeros(0)
    if not choose:
        return x
    chosen = x[:: max(1, -(-len(x) // JUDGED_INPUTS))]
    if x.dim() != 2 or x.shape[1] != 2:
        return chosen
    low, high = x.amin(0), x.amax(0)
    margin = 0.25 * (high - low)
    axes = [
        torch.linspace(float(low[axis] - margin[axis]), float(high[axis] + margin[axis]), GRID) for axis in range(2)
    ]
    grid = torch.cartesian_prod(*axes).to(x)
    return torch.cat((chosen, grid))
