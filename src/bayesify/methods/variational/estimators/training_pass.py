"""One training pass: layers that support it use a lower-variance estimator, all other weights are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.methods.variational.estimators import flipout, local
from bayesify.methods.variational.estimators.layers import StochasticLayer

if TYPE_CHECKING:
    from bayesify.functional.network import Network


def noisy_outputs(
    network: Network,
    estimator: str,
    layers: Sequence[StochasticLayer],
    mean: Tensor,
    std: Tensor,
    theta: Tensor,
    x: Any,
    *,
    keys: Tensor,
    dropout: Tensor | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs `[draws, batch, ...]` of training passes, and each draw's buffers.

    `mean [P]` and `std [R]` describe the posterior, `theta [draws, P]` are draws from it, and `keys [draws, 2]` are for
    the noise of the layers.
    """
    centres = network.unflatten(mean)
    widths = network.unflatten(torch.cat((std, torch.zeros_like(mean[std.shape[0] :]))))
    kept = network.kept()
    served = {f"{layer.name}.{part}".lstrip(".") for layer in layers for part in ("weight", "bias")}
    results = []
    for draw in range(theta.shape[0]):
        drawn = network.unflatten(theta[draw])
        tensors = {name: centres[name] if name in served else drawn[name] for name in drawn}
        forwards: dict[StochasticLayer, Callable[[Tensor], Tensor]] = {}
        for layer in layers:
            weight, bias = _names(layer)
            pair = (centres[weight], centres.get(bias, kept.get(bias)))  # a frozen bias is kept beside theta
            if estimator == "local":
                spread = (widths[weight], widths.get(bias))
                forwards[layer] = partial(local.forward, layer, mean=pair, std=spread, key=keys[draw])
            else:
                delta = drawn[weight] - centres[weight]
                forwards[layer] = partial(
                    flipout.forward, layer, mean=pair, delta=delta, bias_std=widths.get(bias), key=keys[draw]
                )
        mask = None if dropout is None else dropout[draw]
        results.append(network.call(tensors, x, train=True, dropout=mask, around=_replaced(forwards)))
    buffers = {name: torch.stack([b[name] for _, b in results]) for name in results[0][1]}
    return torch.stack([output for output, _ in results]), buffers


def _names(layer: StochasticLayer) -> tuple[str, str]:
    prefix = f"{layer.name}." if layer.name else ""
    return f"{prefix}weight", f"{prefix}bias"


@contextmanager
def _replaced(forwards: dict[StochasticLayer, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    # `forward` in an instance overrides that of its class: the copy of the network gets one for the length of a pass.
    for layer, forward in forwards.items():
        layer.layer.__dict__["forward"] = forward
    try:
        yield
    finally:
        for layer in forwards:
            del layer.layer.__dict__["forward"]
