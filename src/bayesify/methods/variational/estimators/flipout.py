"""Flipout: one weight draw per step, turned into nearly independent draws per input by random signs (Wen et al. 2018).

For a perturbation `delta = sigma * eps` with independent symmetric entries, `delta * (s r^T)` has the same distribution
for any signs, so each input n may use its own:

    y_n = op(x_n, mu_w, mu_b) + s_n * op(r_n * x_n, delta_w) + sigma_b * eps_n

The signs are shared over an input's positions, so an input still sees one set of weights: unbiased for every layer.
"""

from __future__ import annotations

import math

from torch import Tensor

from bayesify import noise
from bayesify.methods.variational.estimators.layers import StochasticLayer

_OUT, _BIAS = 1 << 28, 1 << 29  # beyond any number of layers


def forward(
    layer: StochasticLayer,
    x: Tensor,
    mean: tuple[Tensor, Tensor | None],
    delta: Tensor,
    bias_std: Tensor | None,
    key: Tensor,
) -> Tensor:
    """One noisy pass through a layer; `key [2]` is the draw's."""
    apply = layer.kind.apply
    centre = apply(layer.layer, x, mean[0], mean[1])
    signed = x
    if not layer.kind.looks_up:
        signed = x * _signs(layer, x, noise.fold(key, layer.number)).to(x.dtype)
    change = apply(layer.layer, signed, delta, None)
    y = centre + change * _signs(layer, change, noise.fold(key, layer.number + _OUT)).to(change.dtype)
    if bias_std is None:
        return y
    shape = _per_input(layer, y)
    size = math.prod(shape)
    eps = noise.normal(noise.fold(key, layer.number + _BIAS), size, noise.start_of_part(size)).view(shape)
    features = [1] * y.dim()
    features[layer.kind.feature_axis] = -1
    return y + eps.to(y.dtype) * bias_std.view(features).to(y.dtype)


def _signs(layer: StochasticLayer, x: Tensor, key: Tensor) -> Tensor:
    shape = _per_input(layer, x)
    return noise.signs(key, math.prod(shape), noise.start_of_part(math.prod(shape))).view(shape)


def _per_input(layer: StochasticLayer, x: Tensor) -> list[int]:
    """One number per input and feature, the same at every position."""
    shape = [1] * x.dim()
    shape[layer.batch_axis] = x.shape[layer.batch_axis]
    shape[layer.kind.feature_axis] = x.shape[layer.kind.feature_axis]
    return shape
