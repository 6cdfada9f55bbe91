"""Counts: outputs are the logarithms of rates, `log p(y) = y * output - exp(output) - log y!`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.shapes import aligned, one_number, real


class Poisson(Regression):
    """A whole number from 0, with `exp(output)` both its mean and its variance."""

    name = "poisson"
    discrete = True

    def prepare(self, targets: Any) -> Tensor:
        counts = super().prepare(targets)
        wrong = counts[(counts < 0) | (counts != counts.floor())]
        if len(wrong):
            raise ValueError(f"Poisson needs whole numbers from 0, got {wrong[0].item():g}")
        return counts

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        log_rate, counts = aligned(real(outputs), targets)
        counts = counts.to(log_rate.dtype)
        return (counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return one_number(real(outputs).exp())

    def noise_variance(self, outputs: Tensor) -> Tensor:
        return self.mean(outputs)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        counts = values.floor()
        chance = torch.special.gammaincc(counts.clamp(min=0) + 1, self.mean(outputs))
        return torch.where(counts >= 0, chance, 0.0)
