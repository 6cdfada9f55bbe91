"""Counts: outputs are the logarithms of rates, `log p(y) = y * output - exp(output) - log y!`."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesify.likelihoods.counts import Counts
from bayesify.likelihoods.shapes import aligned, one_number, real


class Poisson(Counts):
    """A count: `log p(y) = y * output - exp(output) - log y!`, with mean and variance `exp(output)`.

    Examples:
        >>> likelihood = bf.likelihoods.Poisson()
        >>> likelihood.log_prob(torch.zeros(1, 3, 1), torch.tensor([0.0, 1.0, 2.0]))
        tensor([[-1.0000, -1.0000, -1.6931]])

    """

    name = "poisson"

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """`y * output - exp(output) - log y!`, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        log_rate, counts = aligned(real(outputs), targets)
        counts = counts.to(log_rate.dtype)
        return (counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The rate `exp(output)`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return one_number(real(outputs).exp())

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The rate `exp(output)`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.mean(outputs)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a count at most `values`: `Q(values + 1, rate)`, Q the upper incomplete gamma function.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        counts = values.floor()
        probability = torch.special.gammaincc(counts.clamp(min=0) + 1, self.mean(outputs))
        return torch.where(counts >= 0, probability, 0.0)
