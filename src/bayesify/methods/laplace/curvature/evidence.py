"""The marginal likelihood of the Laplace approximation, and the prior precision that maximises it.

    log p(D) ~ log p(D | w*) - (w* - m)' D (w* - m) / 2 + log |D| / 2 - log |H + D| / 2

With D = diag(d) times a factor f_g for each group g of weights, its gradient is zero where (MacKay 1992)

    f_g = (R_g - sum over g of D_ii (H + D)^-1_ii) / sum over g of d_i (w*_i - m_i)^2,

the number of well-determined weights over their squared length. It is iterated to a fixed point, with w* unchanged.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesify.methods.laplace.curvature.structures import Curvature

_ROUNDS = 500
_TOLERANCE = 1e-6
# The bound where the evidence has its maximum at a precision of zero or infinity.
_LARGEST_LOG_FACTOR = 18.0


def log_marginal_likelihood(
    curvature: Curvature, log_likelihood: Tensor, precision: Tensor, deviation: Tensor
) -> Tensor:
    """The approximate log evidence, from a prior of `precision [R]` and weights `deviation [R]` from its mean."""
    distance = (precision * deviation.double().square()).sum()
    return log_likelihood - 0.5 * (distance - precision.log().sum() + curvature.log_det(precision))


def precision_factors(
    curvature: Curvature, precision: Tensor, groups: Tensor, deviation: Tensor, log_factors: Tensor
) -> Tensor:
    """Logarithms of what multiplies the prior's `precision [R]` in each of the `groups [R]` at the best evidence."""
    count = len(log_factors)
    sizes = _totals(torch.ones_like(precision), groups, count)
    length = _totals(precision * deviation.double().square(), groups, count)
    current = log_factors
    for _ in range(_ROUNDS):
        scaled = precision * current.exp()[groups]
        determined = sizes - _totals(scaled * curvature.variance(scaled), groups, count)
        # Both limits occur: weights at the mean of the prior, and weights that the data do not determine.
        ratio = determined.clamp(min=0).log() - length.log()
        new = ratio.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
        new = new.clamp(-_LARGEST_LOG_FACTOR, _LARGEST_LOG_FACTOR)
        change = (new - current).abs().max()
        current = new
        if change < _TOLERANCE:
            break
    return current


def _totals(values: Tensor, groups: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=values.dtype, device=values.device).index_add_(0, groups, values)
