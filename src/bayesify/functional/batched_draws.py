"""A network at many sets of weights at once, by the best of three tiers.

- batched: batched products, for a plain chain of known layers (`layer_chain.py`);
- vmap: `torch.func.vmap` over `functional_call`;
- loop: one call per draw, for all other networks, and for large products, where it is fastest.

Whether vmap works for a network is tried on two examples, where it must give the same numbers as one call per draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import first_line

if TYPE_CHECKING:
    from bayesify.functional.network import Network

# Above this many weights, one product per draw keeps the cores of a CPU busy, and batching only adds memory traffic
# (measured on two cores). A GPU would wait for Python then, so it batches, except for convolutions: those of many draws
# are grouped convolutions, which are slow there.
LOOP_FROM_WEIGHTS = 100_000


def evaluate(
    network: Network,
    theta: Tensor,
    x: Any,
    *,
    train: bool,
    dropout: Tensor | None,
    fixed_mask: bool,
    each: bool,
    kept: Mapping[str, Tensor] | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """`Network.outputs`: at the rows of `theta [draws, P]`, outputs `[draws, batch, ...]` and each draw's buffers."""
    tier, replaced = "loop", network.shares_prefix or (train and bool(network.recomputed))
    if not replaced:
        tier, _ = best_tier(network, theta.shape[0], x, train=train, each=each, stochastic=dropout is not None)
    if tier == "batched":
        with network.pass_context(train=train):
            return _batched(network, theta, x), {}
    if tier == "vmap":
        try:
            return _vmapped(network, theta, x, train, dropout, fixed_mask, each, kept)
        except Exception as problem:  # noqa: BLE001 -- this batch may do what the probed one did not
            network.probed[train, each, dropout is not None] = "loop", f"vmap failed: {first_line(problem)}"
    plain_chain = network.is_chain and not replaced
    if plain_chain and not each and dropout is None and network.traced(x).problem is None:
        with network.pass_context(train=train):
            return torch.cat([_batched(network, row.unsqueeze(0), x) for row in theta.unbind()]), {}
    results = [
        network.call(
            tensors,
            _row(x, draw) if each else x,
            train=train,
            dropout=None if dropout is None else dropout[draw],
            fixed_mask=fixed_mask,
            kept=_row(kept, draw) if each and kept is not None else kept,
        )
        for draw, tensors in enumerate(network.each_unflattened(theta, _row(x, 0) if each else x, train=train))
    ]
    buffers = {name: torch.stack([left[name] for _, left in results]) for name in results[0][1]}
    return torch.stack([output for output, _ in results]), buffers


def best_tier(network: Network, draws: int, x: Any, *, train: bool, each: bool, stochastic: bool) -> tuple[str, str]:
    """`Network.tier`: the tier for this many draws, and why; results of trials are kept in `network.probed`."""
    if draws == 1 and (not network.is_chain or each or stochastic):
        return "loop", "one draw is one call"
    alone = network.device.type == "cpu" or network.convolves
    if network.size >= LOOP_FROM_WEIGHTS and draws > 1 and alone:
        return "loop", "large products are faster one draw at a time"
    trace = network.traced(_row(x, 0) if each else x)
    if trace.problem is not None:
        return "loop", f"it could not be traced: {trace.problem}"
    if train and trace.updates_buffers:
        return "loop", "running statistics change in training"
    if train and trace.checkpoints:
        return "loop", "it makes activation checkpoints"
    if trace.uses_generator:
        return "loop", "it draws from torch's generator"
    if network.is_chain and not each and not stochastic:
        return "batched", "a plain chain of known layers"
    kind = (train, each, stochastic)
    if kind not in network.probed:
        network.probed[kind] = _probe_vmap(network, _row(x, 0) if each else x, *kind)
    return network.probed[kind]


def _batched(network: Network, theta: Tensor, x: Any) -> Tensor:
    ((x,), _) = network.arguments(x)
    if network.traced(x).changes_inputs:
        x = x.clone()
    return network.chained(network.unflatten(theta), x)


def _vmapped(
    network: Network,
    theta: Tensor,
    x: Any,
    train: bool,
    dropout: Tensor | None,
    fixed_mask: bool,
    each: bool,
    kept: Mapping[str, Tensor] | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    tensors = network.unflatten(theta)
    by_draw, shared = (dict(kept or {}), {}) if each else ({}, dict(kept or {}))

    def one_draw(tensors: dict[str, Tensor], x: Any, key: Tensor | None, by_draw: dict[str, Tensor]) -> Any:
        return network.call(tensors, x, train=train, dropout=key, fixed_mask=fixed_mask, kept={**shared, **by_draw})

    axes = (0, 0 if each else None, None if dropout is None else 0, 0)
    outputs, buffers = vmap(one_draw, in_dims=axes, randomness="error")(tensors, x, dropout, by_draw)
    return outputs, buffers


def _probe_vmap(network: Network, x: Any, train: bool, each: bool, stochastic: bool) -> tuple[str, str]:
    keys = noise.keys(0, noise.Stream.INITIAL, draws=range(2), device=network.device)
    theta = network.initial + 0.05 * noise.normal(keys, network.size).to(network.dtype)
    few = pytree.tree_map_only(Tensor, lambda t: t[:2].clone(), x)
    both = pytree.tree_map_only(Tensor, lambda t: torch.stack((t, t)), few) if each else few
    dropout = keys if stochastic else None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop")
            together = _vmapped(network, theta, both, train, dropout, False, each, None)[0]
        with torch.no_grad():
            one_by_one = [
                network.call(network.unflatten(row), few, train=train, dropout=key if stochastic else None)[0]
                for row, key in zip(theta, keys, strict=True)
            ]
    except Exception as problem:  # noqa: BLE001 -- where vmap fails, the loop works
        return "loop", f"vmap failed: {first_line(problem)}"
    tolerance = 0.05 if network.input_dtype.itemsize < 4 else 1e-3
    if not torch.allclose(together, torch.stack(one_by_one), rtol=tolerance, atol=tolerance / 10, equal_nan=True):
        return "loop", "vmap and one call per draw give different numbers"
    return "vmap", "vmap over functional_call"


def _row(x: Any, index: int) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t[index], x)
