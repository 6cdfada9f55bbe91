"""The improper priors, Flat and LogUniform: densities that do not integrate to one, with a KL up to a constant.

    Flat         p(w) = 1        KL = -entropy
    LogUniform   p(w) = 1/|w|    KL ~ k1 sigmoid(k3 log r - k2) + log(1 + r) / 2,   r = mean^2 / std^2

The log-uniform prior is from D. Kingma, T. Salimans and M. Welling, "Variational Dropout and the Local
Reparameterization Trick", 2015, arXiv:1506.02557. The approximation of its KL is from D. Molchanov, A. Ashukha and
D. Vetrov, "Variational Dropout Sparsifies Deep Neural Networks", 2017, arXiv:1701.05369, shifted to be zero at mean
zero.
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
        """Always raises a ValueError: an improper prior has no draws.

        Args:
            keys: not used.
            size: not used.
            scale: not used.
            mean: not used.
            start: not used.

        Raises:
            ValueError: always.

        """
        raise ValueError(f"a {self.name} prior is improper and cannot be sampled: use one such as normal:1")


@dataclass(frozen=True)
class Flat(_Improper):
    """The flat improper prior, `p(w) = 1`: the KL is minus the entropy, up to a constant.

    Examples:
        >>> prior = bf.priors.Flat()
        >>> prior.log_density(torch.tensor([0.0, 5.0])), prior.proper
        (tensor([0., 0.]), False)

    """

    name = "flat"
    approximate = "improper: KL up to a constant"

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        """Zero for every weight.

        Args:
            weights: any shape.
            scale: not used.
            mean: not used.

        Returns:
            A tensor of the shape of `weights`.

        """
        return 0.0 * weights  # zeros with a gradient

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """Minus the entropy of each weight; it does not depend on the posterior's mean.

        Args:
            mean: the posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: not used.
            prior_mean: not used.

        Returns:
            A tensor of the shape of `mean`.

        """
        return 0.0 * mean - entropy(std)


@dataclass(frozen=True)
class LogUniform(_Improper):
    """The log-uniform improper prior, `p(w) = 1 / |w|`: the same mass for every order of magnitude.

    It makes many weights redundant, which pruning then removes (D. Molchanov, A. Ashukha and D. Vetrov, "Variational
    Dropout Sparsifies Deep Neural Networks", 2017, arXiv:1701.05369).

    Examples:
        >>> prior = bf.priors.LogUniform()
        >>> prior.log_density(torch.tensor([1.0, 10.0]))
        tensor([-0.0000, -2.3026])
        >>> prior.closed_kl(torch.tensor([0.1, 1.0]), torch.tensor([1.0, 0.1]))
        tensor([0.0051, 2.9390])

    """

    name = "log-uniform"
    approximate = "improper: KL up to a constant, by the approximation of Molchanov et al. 2017"

    def log_density(self, weights: Tensor, scale: Number | None = None, mean: Number | None = None) -> Tensor:
        """`-log |w|` of each weight.

        Args:
            weights: any shape.
            scale: not used.
            mean: not used.

        Returns:
            A tensor of the shape of `weights`.

        """
        # The clamp moves zero and subnormal numbers only: there the value is finite and the slope zero, by symmetry.
        return -torch.log(weights.abs().clamp(min=torch.finfo(weights.dtype).tiny))

    def closed_kl(
        self, mean: Tensor, std: Tensor, scale: Number | None = None, prior_mean: Number | None = None
    ) -> Tensor:
        """`k1 sigmoid(k3 log r - k2) + log(1 + r) / 2` with `r = mean^2 / std^2`, within 0.01 of the exact KL.

        Args:
            mean: the posterior's means, any shape.
            std: its standard deviations, the same shape.
            scale: not used.
            prior_mean: not used.

        Returns:
            A tensor of the shape of `mean`.

        """
        # Below 1e-15 both terms are under 1e-30; the clamp gives the slope at mean zero, which is zero.
        log_ratio = 2.0 * torch.log((mean / std).abs().clamp(min=1e-15))
        bump = 0.63576 * torch.sigmoid(1.48695 * log_ratio - 1.87320)
        return bump + 0.5 * torch.logaddexp(log_ratio, torch.zeros_like(log_ratio))
