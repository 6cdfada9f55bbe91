"""Which networks have a posterior that chains can draw, and the inputs on which their agreement is judged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.functional.network import Network
from bayesify.training.examples import take

JUDGED_INPUTS = 50
GRID = 10


def check_network(network: Network, x: Any) -> None:
    """Refuse a network whose function is not one of its weights alone."""
    if network.random_size == 0:
        raise ValueError("no weight is random: bayesian= selects none that could be sampled")
    trace = network.traced(take(x, slice(2)))
    if trace.problem is not None:
        raise ValueError(f"hmc cannot sample a network that could not be traced: {trace.problem}")
    if trace.updates_buffers or trace.buffers_in_evaluation:
        raise ValueError(
            "hmc cannot sample a network with running statistics (batch normalisation): its function depends on the "
            "order of batches; use LayerNorm or GroupNorm"
        )
    if trace.dropout_sites:
        rates = ", ".join(f"{site.rate:g}" for site in trace.dropout_sites)
        raise ValueError(f"hmc cannot sample a network with dropout (rates {rates}): remove it, or use MCDropout")
    if trace.uses_generator or trace.keeps_state:
        raise ValueError("hmc cannot sample a network that draws random numbers of its own or keeps a state")


def spread_inputs(x: Any, choose: bool) -> Tensor:
    """Inputs to judge convergence on: all of x, or with `choose` some of it, and a grid around inputs of two numbers.

    Inputs in a form that is not one tensor of numbers are not kept; `diagnose` asks for them then.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return torch.zeros(0)
    if not choose:
        return x
    some = x[:: max(1, -(-len(x) // JUDGED_INPUTS))]
    if x.dim() != 2 or x.shape[1] != 2:
        return some
    low, high = x.amin(0), x.amax(0)
    margin = 0.25 * (high - low)
    axes = [
        torch.linspace(float(low[axis] - margin[axis]), float(high[axis] + margin[axis]), GRID) for axis in range(2)
    ]
    grid = torch.cartesian_prod(*axes).to(x)
    return torch.cat((some, grid))
