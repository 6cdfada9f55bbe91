"""A network linearised at a centre: f(x; c) + J(x) (w - c), one function for each w (Immer et al. 2021)."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayesify.errors import first_line
from bayesify.functional.network import Network


def linearised_outputs(network: Network, centre: Tensor, theta: Tensor, x: Any) -> Tensor:
    """Outputs `[draws, batch, ...]` of the linear functions at weights `theta [draws, P]`."""

    def outputs(weights: Tensor) -> Tensor:
        return network.call(network.unflatten(weights), x)[0]

    def push(away: Tensor) -> Any:
        return jvp(outputs, (centre,), (away,))[1]

    away = theta - centre
    try:
        at_centre = outputs(centre)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop")
            moved: Tensor = push(away[0]).unsqueeze(0) if len(away) == 1 else vmap(push)(away)
    except Exception:  # noqa: BLE001 -- some layers have no forward derivative, or none for many: two backward do
        moved = _by_two_backward_passes(outputs, centre, away)
        at_centre = outputs(centre)
    return at_centre + moved


def _by_two_backward_passes(outputs: Any, centre: Tensor, away: Tensor) -> Tensor:
    # The backward pass u -> J' u is linear in u, so its own backward pass is v -> J v.
    try:
        # cuDNN's recurrent layers and the fast kernels of attention have no second derivative; torch's own have.
        with torch.backends.cudnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
            backward: Any = vjp(outputs, centre)
            at_centre, pull = backward
            push: Any = vjp(lambda u: pull(u)[0], torch.zeros_like(at_centre))[1]
            return torch.stack([push(v)[0] for v in away])
    except Exception as problem:
        raise ValueError(
            f'the network cannot be linearised ({first_line(problem)}): use predictive="weights"'
        ) from problem
