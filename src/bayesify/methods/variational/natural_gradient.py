"""Natural-gradient steps for the full-rank family: a few thousand steps where Adam needs tens of thousands.

    q(z) = N(m, S), S = L L', z = m + L eps; f(z) = -log p(y, z) in nats over all data, g its gradient at a draw
    B = mean over draws of sym(eps (L' g - eps)'),     whitened curvature minus the identity, by Price's theorem
    S^-1 <- L^-T (I + b B + (b B)^2 / 2) L^-1,         m <- m - b L L' mean(g)

(M. Khan and H. Rue, "The Bayesian learning rule", 2023; the square is the correction of W. Lin, M. Schmidt and M. Khan,
"Handling the positive-definite constraint in the Bayesian learning rule", 2020: the bracket is never below one half.)
Draws come in pairs of opposite noise, so that a gradient at the mean does not enter B. Taking eps from L' g is sticking
the landing (Roeder et al. 2017): both estimates have no noise where q is the posterior and the posterior is Gaussian.

With k pairs over n variables an estimate of B has relative noise of about sqrt((n + 2) / k). The rate starts at
k / (k + n + 2), the one that shrinks the error fastest, and later falls like 1 / step, which averages out the noise of
batches and of posteriors that are not Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.errors import positive
from bayesify.methods.variational.families import Family, FullRank
from bayesify.training.kl import KL
from bayesify.training.light_optimizers import LightOptimizer

# What `fit(optimizer=)` calls them.
NATURAL = "natural"
# The largest number of random variables for which natural gradients are the default: a step costs n^3.
LARGEST = 128
FEWEST_DRAWS = 4
# In a step, no whitened precision grows by more than about 2.5, and the mean moves by at most half of a width in the
# mean square: far from the optimum the estimates are only local.
LARGEST_CURVATURE, LARGEST_MOVE = 1.0, 0.5
# The rate begins to fall after this many times its own time scale.
_CONSTANT_FOR = 10.0
# Parameters without a posterior follow Adam at this rate, which falls with the other.
_ADAM_RATE, _ADAM_BETAS, _ADAM_EPS = 0.05, (0.9, 0.999), 1e-8


def why_not_natural(family: Family, bound: str, kl: str) -> str | None:
    """Why natural gradients do not apply, as the end of a sentence; None where they do."""
    if family.name != FullRank.name:
        return f"is for family='full_rank', the family is {family.name!r}"
    if bound != "elbo":
        return f"maximises the ELBO, the bound is {bound!r}"
    weighting = KL.parse(kl)
    if weighting.weighting != "uniform" or weighting.warm_up:
        return f"needs a constant KL weight, kl is {kl!r}"
    return None


def natural_rate(step: int, variables: int, draws: int) -> float:
    """The share of a natural-gradient step: constant at first, then falling like 1 / step.

    Args:
        step: steps made so far.
        variables: n, the number of random variables.
        draws: of a step; half of them are independent.

    Returns:
        A number between 0 and 1.

    """
    pairs = draws // 2
    first = pairs / (pairs + variables + 2)
    return first / (1.0 + max(0.0, step * first / _CONSTANT_FOR - 1.0))


def natural_update(
    mean: Tensor, root: Tensor, gradient: Tensor, curvature: Tensor, rate: float
) -> tuple[Tensor, Tensor]:
    """One step as a pure function: the new mean `[n]` and the new Cholesky factor `[n, n]` of the covariance.

    Args:
        mean: of the random variables, `[n]`.
        root: L, the lower Cholesky factor of their covariance, `[n, n]`.
        gradient: of f, averaged over the draws, `[n]`.
        curvature: B, symmetric, `[n, n]`.
        rate: the share of a natural-gradient step.

    """
    move = rate * (root.T @ gradient)
    move = move * _limit(move.square().mean().sqrt(), LARGEST_MOVE)
    change = rate * curvature
    change = change * _limit(torch.linalg.matrix_norm(change), LARGEST_CURVATURE)
    identity = torch.eye(mean.shape[0], dtype=mean.dtype, device=mean.device)
    growth = identity + change + 0.5 * change @ change
    # growth = C C' with C upper triangular, so that L C^-T is the lower factor of the new covariance.
    flipped, failed = torch.linalg.cholesky_ex(growth.flip(0, 1))
    upper = flipped.flip(0, 1)
    new: Tensor = torch.linalg.solve_triangular(upper.T, root, upper=False, left=False)
    # It fails only where a number is not finite: NaN makes training stop with an error.
    return mean - root @ move, torch.where(failed == 0, new, torch.nan)


class FullRankNaturalGradient(LightOptimizer):
    """`natural_update` for a full-rank posterior; Adam for parameters without a posterior.

    `fit` finds the gradient of f at the random variables in `mean.grad`, and B in `factor.grad`.

    Args:
        mean: of all variables.
        rho: widths of the random ones before softplus, `[n]`.
        factor: the part of L below its diagonal, in the widths' units and times sqrt(n), `[n, n]`.
        others: parameters without a posterior.
        random: the places of the random variables in `mean`, `[n]`.
        draws: of a step.
        widest: a limit of the widths; infinite under proper priors.
        learning_rate: multiplies the rates; 1 is right.

    """

    def __init__(
        self,
        mean: nn.Parameter,
        rho: nn.Parameter,
        factor: nn.Parameter,
        others: Sequence[nn.Parameter],
        random: Tensor,
        *,
        draws: int,
        widest: float = math.inf,
        learning_rate: float = 1.0,
    ) -> None:
        if positive("learning_rate", learning_rate) > 1:
            raise ValueError(
                f"learning_rate of natural gradients is a share of their own rate, at most 1, got {learning_rate}"
            )
        super().__init__([{"params": [mean, rho, factor, *others]}], {"lr": learning_rate})
        self.random, self.draws, self.widest = random, draws, widest

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        mean, rho, factor, *others = self.param_groups[0]["params"]
        state = self._state(mean)
        done, n = int(state["steps"]), rho.shape[0]
        rate = self.param_groups[0]["lr"] * natural_rate(done, n, self.draws)
        gradient = mean.grad.double()
        width, root = covariance_root(rho, factor, self.widest)
        centre, root = natural_update(
            mean[self.random].double(), root, gradient[self.random], factor.grad.double(), rate
        )
        width = root.diagonal().clamp(max=self.widest)
        # Adam moves every number of the mean; those of the random variables are replaced after it.
        fraction = rate / natural_rate(0, n, self.draws)
        for parameter in (mean, *others):
            if parameter.grad is not None and (parameter is not mean or mean.numel() > n):
                _adam(parameter, self._state(parameter), _ADAM_RATE * fraction, done + 1)
        mean[self.random] = centre.to(mean.dtype)
        rho.copy_(width + torch.log(-torch.expm1(-width)))
        factor.copy_((root / root.diagonal().unsqueeze(1)).tril(-1) * math.sqrt(n))
        state["steps"] = done + 1

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state |= {"steps": 0, "first": torch.zeros_like(parameter), "second": torch.zeros_like(parameter)}
        return state


def covariance_root(rho: Tensor, factor: Tensor, widest: float = math.inf) -> tuple[Tensor, Tensor]:
    """Widths `[n]` and the Cholesky factor `[n, n]` of a full-rank posterior, float64."""
    width = torch.nn.functional.softplus(rho.double()).clamp(min=torch.finfo(rho.dtype).tiny, max=widest)
    below = factor.double().tril(-1) / math.sqrt(factor.shape[0])
    identity = torch.eye(rho.shape[0], dtype=torch.float64, device=rho.device)
    return width, width.unsqueeze(1) * (identity + below)


def whitened_curvature(root: Tensor, gradients: Tensor, eps: Tensor) -> Tensor:
    """B from the gradients of f `[draws, n]` at draws `m + L eps`, eps `[draws, n]` in pairs of opposite signs."""
    product = eps.T @ (gradients @ root - eps) / eps.shape[0]
    return 0.5 * (product + product.T)


def _limit(size: Tensor, largest: float) -> Tensor:
    return (largest / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(max=1.0)


def _adam(parameter: Tensor, state: dict[str, Any], rate: float, count: int) -> None:
    assert parameter.grad is not None
    (first, second), gradient = _ADAM_BETAS, parameter.grad
    state["first"].lerp_(gradient, 1 - first)
    state["second"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
    size = torch.sqrt(state["second"] / (1 - second**count)) + _ADAM_EPS
    parameter.sub_(rate / (1 - first**count) * state["first"] / size)
