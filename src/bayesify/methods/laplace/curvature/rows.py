"""Rows S' J of the curvature's root, by one backward pass per output and example."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.utils import _pytree as pytree

from bayesify.functional.network import Network


def curvature_rows(network: Network, theta: Tensor, x: Any, roots: Tensor) -> Tensor:
    """`[batch * columns, R]` for roots `[batch, columns, size]`; the matrix H is the rows' own product."""
    size = network.random_size
    free, fixed = theta[:size].detach(), theta[size:].detach()

    def rows_of(example: Any, pulled: Tensor) -> Tensor:
        alone = pytree.tree_map_only(Tensor, lambda t: t.unsqueeze(0), example)

        def outputs(weights: Tensor) -> Tensor:
            return network.call(network.unflatten(torch.cat((weights, fixed))), alone)[0].flatten()

        pull: Any = vjp(outputs, free)[1]
        rows: Tensor = vmap(lambda v: pull(v)[0])(pulled)
        return rows

    try:
        with warnings.catch_warnings():
            # Where vmap falls back to a loop with a warning, the loop below is used without one.
            warnings.filterwarnings("error", "There is a performance drop")
            stacked: Tensor = vmap(rows_of)(x, roots)
    except Exception:  # noqa: BLE001 -- whatever vmap cannot do, one example at a time still works
        stacked = torch.stack([_rows_of_one(network, free, fixed, _row(x, n), roots[n]) for n in range(len(roots))])
    return stacked.flatten(0, 1)


def _rows_of_one(network: Network, free: Tensor, fixed: Tensor, x: Any, pulled: Tensor) -> Tensor:
    # cuDNN's recurrent layers have no backward pass in evaluation mode; torch's own have.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        weights = free.clone().requires_grad_()
        outputs = network.call(network.unflatten(torch.cat((weights, fixed))), x)[0].flatten()
        rows = [
            torch.autograd.grad(outputs, weights, column.to(outputs.dtype), retain_graph=True)[0] for column in pulled
        ]
    return torch.stack(rows)


def _row(x: Any, index: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t[index : index + 1], x)
