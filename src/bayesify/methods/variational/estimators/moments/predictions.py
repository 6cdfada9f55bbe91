"""From the moments of the outputs to predictions: a fixed set of points in place of draws of the outputs.

`outputs = mean + std * z` with 64 points z that are the same for every input and every seed. They are mirrored, spread
over equally likely strata in every coordinate (a Latin hypercube, McKay et al. 1979), and rotated slightly until
coordinates are uncorrelated. Mean and variance over the points are exactly the given ones, so a squared error is exact.
For classes the mean softmax of the points is more accurate than one softmax of scaled logits.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesify import noise
from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.labels import Labels
from bayesify.methods.variational.estimators.moments.gaussians import Gaussians, root
from bayesify.methods.variational.estimators.moments.propagation import Contrast, Propagation, signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.functional.network import Network

POINTS = 64


def moment_outputs(
    network: Network, mean: Tensor, std: Tensor, x: Any, likelihood: Likelihood, *, train: bool = False
) -> Tensor:
    """Outputs `[64, batch, ...]` that have the moments of the network's, for weights `mean [P]` and `std [R]`."""
    return stand_ins(Propagation(network, mean, std, train=train)(x, contrast_of(likelihood)))


def stand_ins(outputs: Gaussians) -> Tensor:
    """Points `[64, batch, ...]` whose mean and variance are the given ones."""
    mean, variance = outputs.mean, outputs.variance
    if variance is None:
        return mean.expand(POINTS, *mean.shape)
    places = torch.tensor(_points(mean[0].numel()), device=mean.device, dtype=mean.dtype)
    return torch.addcmul(mean, root(variance), places.view(POINTS, 1, *mean.shape[1:]))


def contrast_of(likelihood: Likelihood) -> Contrast | None:
    """The combination of outputs whose variance matters most: for classes, the most likely minus the second."""
    if not isinstance(likelihood, Labels):
        return None
    share = likelihood.parameters_per_class

    def leaders(mean: Tensor) -> Tensor:
        if mean.dim() != 2 or mean.shape[1] // share < 2:
            return signs(mean)
        first, second = mean[:, : mean.shape[1] // share].topk(2, 1).indices.unbind(1)
        rows = torch.arange(mean.shape[0], device=mean.device)
        direction = torch.zeros_like(mean)
        direction[rows, first], direction[rows, second] = 1.0, -1.0
        return direction

    return leaders


@cache
def _points(size: int) -> NDArray[np.float64]:
    """Standard normal points, `[64, size]`; without tensors, so that a compiler that is tracing sees a constant."""
    half = POINTS // 2
    # The mean of a normal inside each stratum of its upper half.
    normal = NormalDist()
    density = [normal.pdf(normal.inv_cdf(0.5 + stratum / POINTS)) for stratum in range(half)] + [0.0]
    heights, pattern = POINTS * -np.diff(density), _hadamard(half)
    blocks = []
    for first in range(0, size, half - 1):
        columns = []
        for place in range(first, min(first + half - 1, size)):
            words = [noise.key(0, noise.Stream.LOGITS, network=place, draw=stratum) for stratum in range(half)]
            order = sorted(range(half), key=words.__getitem__)
            columns.append(heights[order] * pattern[place - first + 1])
        # Every block uses the same signs, flipped at random for each point.
        turned = [1.0 - 2.0 * (noise.key(1, noise.Stream.LOGITS, network=first, draw=i)[0] & 1) for i in range(half)]
        blocks.append(np.multiply(_uncorrelated(np.stack(columns, 1)), np.expand_dims(turned, 1)))
    points = np.concatenate(blocks, 1)
    return np.concatenate((points, -points))


def _uncorrelated(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest points whose columns have mean square one and mean products zero (Loewdin 1950)."""
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    nearest: NDArray[np.float64] = points @ (vectors / np.sqrt(values)) @ vectors.T
    return nearest


def _hadamard(size: int) -> NDArray[np.float64]:
    """Rows of signs that are orthogonal to each other (Sylvester's construction), for a power of two."""
    rows = np.ones((1, 1))
    while len(rows) < size:
        rows = np.block([[rows, rows], [rows, -rows]])
    return rows
