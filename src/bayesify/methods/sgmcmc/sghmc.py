"""SGHMC: Langevin dynamics with momentum, which crosses a valley where SGLD diffuses (Chen, Fox and Guestrin 2014).

    v <- v - h * grad U(w);   w <- w + h/2 * v;   v <- c v + sqrt((1 - c^2) T) * eps;   w <- w + h/2 * v

with c = 1 - friction: the paper's second-order Langevin dynamics, in the symmetric splitting that needs one gradient a
step (BAOAB of Leimkuhler and Matthews 2013, its two half kicks at one place merged). `fit(learning_rate=r)` is that of
SGD with momentum c on the loss per example, U / N, so `h = sqrt(r / N)`.

On a Gaussian with precision A and whole gradients the stationary covariance of the weights is `T A^-1`, exactly, for
any step with h^2 a < 4: this splitting has no discretisation bias there (the paper's own update is too wide by about
h^2 a / (2 (2 - friction)) of itself). The noise of batches adds to it: with gradient covariance V of U, about
h^2 V / ((1 - c^2) T) in relative terms; more friction or a smaller rate makes it smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.methods.method import NetworkLike, PriorLike
from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC


def sghmc_update(
    theta: Tensor, velocity: Tensor, gradient: Tensor, eps: Tensor, *, step: float, friction: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """One step from weights, their velocity, the gradient of U and standard normals, all of one shape."""
    kept = 1.0 - friction
    velocity = velocity - step * gradient
    theta = theta + 0.5 * step * velocity
    velocity = kept * velocity + math.sqrt((1.0 - kept**2) * temperature) * eps
    return theta + 0.5 * step * velocity, velocity


class SGHMC(StochasticGradientMCMC):
    """Stochastic gradient Hamiltonian Monte Carlo.

    Args:
        friction: the share of the velocity that is replaced in a step: 1 - momentum.
        chains: how many, run together.
        samples: stored per chain.
        burn_in: the share of the steps (of each cycle) that gives no samples.
        cycles: None for the given schedule; a number for that many cosine cycles.
        temperature: of the whole posterior, exp(-U / T): 1 is Bayes, 0 is descent.
        start: `fresh` by default, so that chains differ; `given` starts all from the given weights.

    """

    name: ClassVar[str] = "sghmc"

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        chains: int = 1,
        samples: int = 100,
        burn_in: float = 0.5,
        cycles: int | None = None,
        temperature: float = 1.0,
        friction: float = 0.1,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "fresh",
        seed: int = 0,
    ) -> None:
        if not 0 < friction <= 1:
            raise ValueError(f"friction must be above 0 and at most 1, got {friction!r}")
        super().__init__(
            network,
            likelihood,
            prior=prior,
            chains=chains,
            samples=samples,
            burn_in=burn_in,
            cycles=cycles,
            temperature=temperature,
            bayesian=bayesian,
            output=output,
            start=start,
            seed=seed,
        )
        self.friction = float(friction)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "friction": self.friction}

    def move(self, x: Tensor, gradient: Tensor, eps: Tensor, rate: float, heat: float, state: dict[str, Any]) -> None:
        velocity = state.get("velocity", torch.zeros_like(x))
        moved, state["velocity"] = sghmc_update(
            x,
            velocity,
            gradient,
            eps,
            step=math.sqrt(rate / self.n_data),
            friction=self.friction,
            temperature=heat,
        )
        x.copy_(moved)
