"""The improper priors, Flat and LogUniform: densities that do not integrate, with a KL up to a constant.

    Flat         p(w) = 1        KL = -entropy
    LogUniform   p(w) = 1/|w|    KL ~ k1 sigmoid(k3 log r - k2) + log(1 + r) / 2,   r = mean^2 / std^2

the second from Kingma, Salimans and Welling (2015), with the approximation of Molchanov, Ashukha and Vetrov
(2017), shifted to be zero at mean zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from bayesify.priors.prior import Number, Prior, entropy


class _Improper(Prior):
    proper = False

    def sample(
        self,
        keys: Tensor,
        size: int,
        scale: Number | None = None,
        mean: Number | None = None,
        start: int = 0,
    ) -> NoReturn:
        raise ValueError(f"a {self.name} prior is improper and cannot be sampled: use one such as normal:1")


@dataclass(frozen=True)
class Flat(_Improper):
    """Density one everywhere."""

    name = "flat"
    approximate = "improper: KL up to a constant"

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        return 0.0 * weights  # zeros that still belong to the graph

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """Minus the entropy, which does not depend on where the posterior lies."""
        return 0.0 * mean - entropy(std)


@dataclass(frozen=True)
class LogUniform(_Improper):
    """Density 1 / |w|, the same for every order of magnitude."""

    name = "log-uniform"
    approximate = "improper: KL up to a constant, by the approximation of Molchanov et al. 2017"

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        # Only zero (and what float calls subnormal) is moved: finite there, and level as symmetry asks.
        return -torch.log(weights.abs().clamp(min=torch.finfo(weights.dtype).tiny))

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """Molchanov et al. (2017), within 0.01 of the integral."""
        # Below 1e-15 both terms are under 1e-30, and the clamp gives the slope at mean zero, which is zero.
        log_ratio = 2.0 * torch.log((mean / std).abs().clamp(min=1e-15))
        bump = 0.63576 * torch.sigmoid(1.48695 * log_ratio - 1.87320)
        return bump + 0.5 * torch.logaddexp(log_ratio, torch.zeros_like(log_ratio))
