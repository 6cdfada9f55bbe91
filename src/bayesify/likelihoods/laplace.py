"""Numbers with Laplace noise, `p(y) = exp(-|y - mean| / noise) / (2 noise)`: outliers cost less than with normal."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesify.likelihoods.location_scale import LocationScale


class Laplace(LocationScale):
    """A number (or several) with Laplace noise: `p(y) = exp(-|y - mean| / noise) / (2 noise)`.

    The mean is `location + scale * output`, which is also the median. Training minimises absolute errors.

    Args:
        noise: the mean absolute deviation, in the units of the targets; `"learned"`, one parameter in standardised
            units; or `"heteroscedastic"`, one for every input, from the second half of the outputs.
        initial: the start value of a learned noise, in standardised units.
        location: the target at an output of 0, a number or one per target.
        scale: the change of the target per unit of output, likewise; above 0.

    Examples:
        >>> likelihood = bf.likelihoods.Laplace(noise=0.5)
        >>> likelihood.log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0]))
        tensor([[ 0., -2.]])

    """

    name = "laplace"
    text_options = ("noise", "initial", "location", "scale")
    standard_variance = 2.0
    has_log_cdf = True

    def standard_log_density(self, z: Tensor) -> Tensor:
        """`-|z| - log 2`.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        return -z.abs() - math.log(2.0)

    def standard_cdf(self, z: Tensor) -> Tensor:
        """`exp(z) / 2` below 0, `1 - exp(-z) / 2` above.

        Args:
            z: standardised residuals.

        Returns:
            Probabilities, shaped like `z`.

        """
        tail = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, tail, 1.0 - tail)

    def standard_quantile(self, levels: Tensor) -> Tensor:
        """`log(2 q)` below the median, `-log(2 (1 - q))` above.

        Args:
            levels: probabilities strictly between 0 and 1.

        Returns:
            Quantiles, shaped like `levels`.

        """
        return torch.where(levels < 0.5, torch.log(2 * levels), -torch.log(2 * (1 - levels)))

    def standard_log_cdf(self, z: Tensor) -> Tensor:
        """`z - log 2` below 0, `log(1 - exp(-z) / 2)` above.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        return torch.where(z < 0, z - math.log(2.0), torch.log1p(-0.5 * torch.exp(-z.clamp(min=0.0))))
