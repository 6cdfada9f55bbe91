"""Variational inference: a Gaussian for every weight, fitted by maximising the evidence lower bound.

    q(w) = N(mu, sigma^2), sigma = softplus(rho)            (mean field; Bayes by Backprop, Blundell et al. 2015)
    loss = mean over draws and batch of -log p(y | x, w) + pi_i * KL(q || p) / B_i

with w = mu + sigma * eps. The KL is exact where the prior allows it; otherwise its entropy part is exact and the
prior's part is averaged over the step's draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesify import initialisation, noise
from bayesify.errors import choose
from bayesify.estimators import ESTIMATORS, noisy_outputs, stochastic_layers
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.priors import Normal, WeightPrior
from bayesify.training.compiling import worth_compiling
from bayesify.training.examples import Batch, Examples
from bayesify.training.fused import FusedPasses, fuse
from bayesify.training.loop import Plan

FAMILIES = ("mean_field",)
# Under an improper prior nothing holds back the width of a weight that the data never touches.
WIDEST_UNDER_IMPROPER_PRIOR = 10.0


class Variational(Method):
    """Mean-field variational inference.

    Args:
        prior: a prior, its text form, or a mapping from name patterns to priors.
        bayesian: which weights are random: "all", "last_layer" or name patterns.
        family: `mean_field`.
        estimator: how noise enters the gradient in training: `weight`, `local` or `flipout`.
        start: where the means start: `given`, `fresh`, `normal:0.1`, `uniform:-0.2,0.2`.
        rho: where the widths start, before softplus: a number or `uniform:-5,-4`.

    """

    name: ClassVar[str] = "variational"

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        family: str = "mean_field",
        estimator: str = "weight",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        rho: float | str = -5.0,
        seed: int = 0,
    ) -> None:
        prior = Normal(1.0) if prior is None else prior
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        if self.network.random_size == 0:
            raise ValueError("no weight is random: bayesian= selects none that a posterior could be placed on")
        self.family = choose("family", family, FAMILIES)
        self.estimator = choose("estimator", estimator, ESTIMATORS)
        self.initial_rho = rho
        self.mu = nn.Parameter(initialisation.start_weights(self.network, start, seed))
        self.rho = nn.Parameter(initialisation.start_rho(self.network, rho, seed))
        self.kept_weights: Tensor
        self.register_buffer("kept_weights", torch.ones(0, dtype=torch.bool, device=self.mu.device))
        self._fused: FusedPasses | None = None

    def settings(self) -> dict[str, Any]:
        return {"family": self.family, "estimator": self.estimator, "rho": self.initial_rho}

    @property
    def std(self) -> Tensor:
        """Posterior standard deviations of the random weights, `[R]`, zero where pruned."""
        return self._std(self.rho).detach()

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        ((x, y),) = batches
        theta, mean, std = self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws)))
        kl = self._divergence(mean, std, theta)
        outputs, buffers = self._noisy(theta, mean, std, x, step)
        nll = self._nll(outputs, y, step)
        return Objective(nll + share / y.shape[0] * kl, nll, kl, buffers)

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        if self._fused is None:
            return super().backward(batches, step=step, share=share, draws=draws)
        ((x, y),) = batches
        weight = share / y.shape[0]
        leaves = self._fused.draw(self.mu, self.rho, self._keys(step, draws))
        theta, mean, std = leaves if len(leaves) == 3 else (leaves[0], None, None)
        outputs, buffers = self._noisy(theta, mean, std, x, step)
        nll = self._nll(outputs, y, step)
        torch.autograd.backward(nll)
        kl = self._fused.differentiate(self.mu, self.rho, weight, leaves)
        return Objective(nll.detach() + weight * kl, nll, kl, buffers)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        keys = noise.keys(seed, noise.Stream.PREDICTION, draws=draws, device=self.mu.device)
        with torch.no_grad():
            return self._posterior(self.mu, self.rho, self._noise(keys))[0]

    @property
    def mean_weights(self) -> Tensor:
        return self._mean(self.mu).detach()

    def prune_to(self, kept: Tensor) -> None:
        """Keep the weights marked in `kept [R]`; the others are exactly zero, in mean and in every draw."""
        self.kept_weights = kept.to(self.mu.device)
        self._fused = None  # compiled passes know the mask they were compiled with

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A pruned network has a mask where an unpruned one has nothing.
        kept = state_dict.get(f"{prefix}kept_weights")
        if kept is not None and kept.shape != self.kept_weights.shape:
            self.kept_weights = kept.to(self.mu.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _begin(self, plan: Plan, examples: Examples) -> None:
        super()._begin(plan, examples)
        steps = plan.epochs * examples.count_batches(plan.batch_size)
        wanted = plan.compiled
        if wanted is None:
            wanted = worth_compiling(self.network.random_size * plan.draws, steps)
        self._fused = fuse(
            self._posterior,
            self._divergence,
            self.mu,
            self.rho,
            self._keys(0, plan.draws),
            whole=self.estimator == "weight",
            wanted=wanted,
        )
        self.plan = replace(plan, compiled=self._fused is not None)

    def _end(self) -> None:
        self._fused = None

    # The model as pure functions of tensors, so that they can be compiled as they are.

    def _posterior(self, mu: Tensor, rho: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draws `[draws, P]` from noise `[draws, R]`, the means `[P]` and the widths `[R]`."""
        mean, std = self._mean(mu), self._std(rho)
        size = std.shape[0]
        theta = mean[:size] + std * eps
        if size < mean.shape[0]:
            theta = torch.cat((theta, mean[size:].expand(eps.shape[0], -1)), 1)
        return theta, mean, std

    def _divergence(self, mean: Tensor, std: Tensor, theta: Tensor) -> Tensor:
        assert isinstance(self.prior, WeightPrior)
        size = std.shape[0]
        if not self.kept_weights.numel():
            return self.prior.kl(mean[:size], std, theta[:, :size])
        # A pruned weight is no longer random: it has no KL; any width but zero keeps its gradient finite.
        kept = self.kept_weights
        return self.prior.kl(mean[:size], torch.where(kept, std, 1.0), theta[:, :size], kept)

    def _mean(self, mu: Tensor) -> Tensor:
        if not self.kept_weights.numel():
            return mu
        size = self.kept_weights.shape[0]
        return torch.cat((mu[:size] * self.kept_weights, mu[size:]))

    def _std(self, rho: Tensor) -> Tensor:
        # Far below zero softplus underflows; the smallest normal number keeps its logarithm finite.
        std = F.softplus(rho).clamp(min=torch.finfo(rho.dtype).tiny)
        if self.prior is not None and not self.prior.proper:
            std = std.clamp(max=WIDEST_UNDER_IMPROPER_PRIOR)
        return std * self.kept_weights if self.kept_weights.numel() else std

    def _keys(self, step: int, draws: int) -> Tensor:
        return noise.keys(self.seed, noise.Stream.TRAINING, step=step, draws=range(draws), device=self.mu.device)

    def _noise(self, keys: Tensor) -> Tensor:
        return noise.normal(keys, self.rho.shape[0]).to(self.mu.dtype)

    def _noisy(
        self, theta: Tensor, mean: Tensor | None, std: Tensor | None, x: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        draws = theta.shape[0]
        dropout = self._training_dropout(x, step, draws)
        if self.estimator == "weight":
            return self.network.outputs(theta, x, train=True, dropout=dropout)
        assert mean is not None
        assert std is not None
        layers = stochastic_layers(self.network, self.network.traced(x))
        keys = noise.keys(self.seed, noise.Stream.LOCAL, step=step, draws=range(draws), device=self.mu.device)
        return noisy_outputs(self.network, self.estimator, layers, mean, std, theta, x, keys=keys, dropout=dropout)

    def _penalty(self, step: int, draws: int) -> Tensor:
        theta, mean, std = self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws)))
        return self._divergence(mean, std, theta)

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        return self._noisy(*self._posterior(self.mu, self.rho, self._noise(self._keys(step, draws))), x, step)
