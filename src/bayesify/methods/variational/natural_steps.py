"""Training steps by natural gradients, for a variational method of the full-rank family (`natural_gradient.py`)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.optim import Optimizer

from bayesify.methods.objective import Objective
from bayesify.methods.variational.natural_gradient import (
    FEWEST_DRAWS,
    LARGEST,
    NATURAL,
    FullRankNaturalGradient,
    covariance_root,
    whitened_curvature,
    why_not_natural,
)
from bayesify.methods.variational.posterior import PosteriorBase
from bayesify.priors.prior import LOG_TWO_PI
from bayesify.training.batches import Batch, Examples
from bayesify.training.loop import Plan
from bayesify.training.optimisation import OptimizerFactory


class NaturalSteps(PosteriorBase):
    """What natural gradients add to a variational method; without effect where another optimiser is used."""

    _natural: bool = False

    def backward(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The objective of a step, with its gradients in `.grad` of the parameters.

        For natural gradients (`natural_gradient.py`), `mu.grad` and `factor.grad` are the gradient and the whitened
        curvature of minus the log joint density, averaged over pairs of draws.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        if not self._natural:
            return super().backward(batches, step=step, share=share, draws=draws)
        ((x, y),) = batches
        assert self.factor is not None
        data = y.shape[0] / share
        half = self._noise(self._keys(step, draws // 2))
        eps = torch.cat((half, -half))
        with torch.no_grad():
            width, root = covariance_root(self.rho, self.factor, self._widest)
            centre = self._variables.pick_random(self.mu)
            z = (centre + (eps.double() @ root.T).to(eps.dtype)).requires_grad_()
        theta = self._variables.whole(z, self.mu)
        outputs, buffers = self._noisy(theta, self.mu, width, x, step)
        log_likelihood = self._log_prob_at(theta, outputs, y, step).mean(1)
        log_prior = self._log_prior(theta)
        others = [p for p in self.parameters() if p.requires_grad and p is not self.rho and p is not self.factor]
        total = -(data * log_likelihood + log_prior).mean()
        slopes, *gradients = torch.autograd.grad(total, [z, *others], allow_unused=True)
        for parameter, gradient in zip(others, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient / data
        # The mean of draws divides each of their gradients by their number.
        slopes = slopes.double() * len(eps)
        self.factor.grad = whitened_curvature(root, slopes, eps.double()).to(self.factor.dtype)
        self.mu.grad = torch.zeros_like(self.mu) if self.mu.grad is None else self.mu.grad
        self.mu.grad[self._variables.random_places] = slopes.mean(0).to(self.mu.dtype)
        nll = -log_likelihood.detach().mean()
        entropy_of_draws = torch.log(width).sum() + 0.5 * (eps.square() + LOG_TWO_PI).sum(1).mean()
        kl = -log_prior.detach().mean() - entropy_of_draws.to(nll.dtype)
        return Objective(nll + share / y.shape[0] * kl, nll, kl, buffers)

    def make_optimizer(self, optimizer: str | OptimizerFactory, learning_rate: float) -> Optimizer:
        """A torch optimiser over the parameters, or natural-gradient steps for `natural`.

        Args:
            optimizer: its name, a name with options such as `sgd:momentum=0.9`, `natural`, or a function
                `(parameters, lr=) -> Optimizer`.
            learning_rate: of the mean loss over a batch; for `natural`, a share of its own rate.

        Returns:
            The optimiser.

        """
        self._natural = optimizer == NATURAL
        if not self._natural:
            return super().make_optimizer(optimizer, learning_rate)
        assert self.plan is not None
        refused = why_not_natural(self._family, self.bound, self.plan.kl)
        if refused is not None:
            raise ValueError(f"optimizer='natural' {refused}: use optimizer='adam'")
        assert self.factor is not None
        own = (self.mu, self.rho, self.factor)
        others = [p for p in self.parameters() if not any(p is parameter for parameter in own)]
        places = self._variables.random_places.to(self.mu.device)
        draws, widest = self.plan.draws, self._widest
        return FullRankNaturalGradient(*own, others, places, draws=draws, widest=widest, learning_rate=learning_rate)

    def choose_optimizer(
        self, optimizer: str | OptimizerFactory | None, learning_rate: float | None, kl: str
    ) -> tuple[str | OptimizerFactory, float | None]:
        """Natural gradients for a full-rank posterior over at most 128 variables where neither is given.

        Args:
            optimizer: as `fit` takes it.
            learning_rate: as `fit` takes it; one without an optimiser is that of Adam.
            kl: the weighting of the KL, in its text form.

        Returns:
            The optimiser and its learning rate.

        """
        own = optimizer is None and learning_rate is None and self._variables.random <= LARGEST
        if own and why_not_natural(self._family, self.bound, kl) is None:
            optimizer = NATURAL
        if optimizer == NATURAL and learning_rate is None:
            learning_rate = 1.0
        return super().choose_optimizer(optimizer, learning_rate, kl)

    def _begin(self, plan: Plan, examples: Examples) -> None:
        if plan.optimizer == NATURAL:
            # Pairs of opposite draws.
            plan = replace(plan, draws=max(FEWEST_DRAWS, plan.draws + plan.draws % 2))
        super()._begin(plan, examples)

    def _end(self) -> None:
        super()._end()
        self._natural = False
