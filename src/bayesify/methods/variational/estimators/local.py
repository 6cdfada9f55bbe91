"""Local reparameterisation: draw a layer's pre-activations instead of its weights (Kingma et al. 2015).

With independent Gaussian weights the pre-activation of one input is Gaussian,

    mean = op(x, mu_w, mu_b)        variance = op(x^2, sigma_w^2, sigma_b^2)

and drawing it once per input gives a gradient with the right mean and less variance. It is exact for a linear layer on
`[batch, features]`. Where a layer shares weights over positions (convolutions, sequences, embeddings) the draws of
different positions are independent here, though their true distribution is correlated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesify import noise
from bayesify.methods.variational.estimators.layers import StochasticLayer


def forward(
    layer: StochasticLayer,
    x: Tensor,
    mean: tuple[Tensor, Tensor | None],
    std: tuple[Tensor, Tensor | None],
    key: Tensor,
) -> Tensor:
    """One noisy pass through a layer; `key [2]` is the draw's."""
    apply = layer.kind.apply
    centre = apply(layer.layer, x, mean[0], mean[1])
    squared_bias = None if std[1] is None else std[1].square()
    variance = apply(layer.layer, x if layer.kind.looks_up else x.square(), std[0].square(), squared_bias)
    # Where the variance is zero (an input of zeros, a pruned layer) the gradient of its root is zero.
    spread = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
    eps = noise.for_inputs(noise.normal, noise.fold(key, layer.number), centre.shape, layer.batch_axis)
    return centre + spread * eps.to(centre.dtype)
