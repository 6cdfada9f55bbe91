"""Two compiled passes around a network: one that makes noise and weights, one that makes the posterior's gradients.

Autograd sees the network alone. It gives the gradient g of the data's part with respect to the drawn weights theta
(and, where an estimator reads them, with respect to the means and widths); the second pass then differentiates

    <g, theta(mu, rho)> + w * KL(mu, rho, theta(mu, rho))

with respect to mu and rho, elementwise, reading and writing each number once. Noise is kept between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify import noise
from bayesify.training.compiling import compiled_or_eager

Posterior = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass
class FusedPasses:
    """The compiled pair, and the memory they write to: allocating it anew costs as much as the arithmetic."""

    before: Callable[..., Any]
    after: Callable[..., Any]
    eps: Tensor
    leaves: list[Tensor]
    gradients: tuple[Tensor, Tensor]

    def draw(self, mu: Tensor, rho: Tensor, keys: Tensor) -> list[Tensor]:
        """The leaves that the network's pass may differentiate: theta and, where they are read, means and widths."""
        with torch.no_grad():
            self.before(mu, rho, keys, self.eps, *self.leaves)
        return [leaf.detach().requires_grad_() for leaf in self.leaves]

    def differentiate(self, mu: Tensor, rho: Tensor, weight: float, leaves: list[Tensor]) -> Tensor:
        """Put the loss's gradients where the optimiser looks for them, and return the KL."""
        given = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
        with torch.no_grad():
            share = torch.tensor(weight, dtype=mu.dtype, device=mu.device)
            kl = self.after(mu, rho, self.eps, share, *self.gradients, *given)
        mu.grad, rho.grad = self.gradients
        assert isinstance(kl, Tensor)
        return kl


def fuse(
    posterior: Posterior,
    kl: Callable[[Tensor, Tensor, Tensor], Tensor],
    mu: Tensor,
    rho: Tensor,
    keys: Tensor,
    *,
    whole: bool,
    wanted: bool,
) -> FusedPasses | None:
    """Compile both passes for tensors like these, or None where that is not wanted or not possible.

    Args:
        posterior: `(mu, rho, eps) -> (theta [draws, P], mean [P], std [R])`, pure.
        kl: `(mean, std, theta) -> scalar`, pure.
        mu: means, `[P]`.
        rho: widths before their transformation, `[R]`.
        keys: one per draw.
        whole: the network's pass reads theta alone, not the means and widths.
        wanted: whether to compile at all.

    """

    def before(mu: Tensor, rho: Tensor, keys: Tensor, eps: Tensor, *leaves: Tensor) -> None:
        eps.copy_(noise.normal(keys, rho.shape[0]))
        for leaf, value in zip(leaves, posterior(mu, rho, eps), strict=False):
            leaf.copy_(value)

    def after(
        mu: Tensor, rho: Tensor, eps: Tensor, weight: Tensor, to_mu: Tensor, to_rho: Tensor, *given: Tensor
    ) -> Tensor:
        def surrogate(mu: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
            theta, mean, std = posterior(mu, rho, eps)
            divergence = kl(mean, std, theta)
            data = sum((g * leaf).sum() for g, leaf in zip(given, (theta, mean, std), strict=False))
            return data + weight * divergence, divergence

        found: tuple[Tensor, Tensor]
        divergence: Tensor
        found, divergence = torch.func.grad(surrogate, argnums=(0, 1), has_aux=True)(mu, rho)
        to_mu.copy_(found[0])
        to_rho.copy_(found[1])
        return divergence

    with torch.no_grad():
        mu, rho = mu.detach(), rho.detach()
        eps = rho.new_empty(keys.shape[0], rho.shape[0])
        leaves = [mu.new_empty(keys.shape[0], mu.shape[0]), *([] if whole else [mu.clone(), rho.clone()])]
        gradients = (torch.empty_like(mu), torch.empty_like(rho))
        first, compiled = compiled_or_eager(before, (mu, rho, keys, eps, *leaves), wanted=wanted)
        if not compiled:
            return None
        share = torch.ones((), dtype=mu.dtype, device=mu.device)
        second, compiled = compiled_or_eager(after, (mu, rho, eps, share, *gradients, *leaves), wanted=True)
    return FusedPasses(first, second, eps, leaves, gradients) if compiled else None
