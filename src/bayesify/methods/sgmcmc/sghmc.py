"""SGHMC: Langevin dynamics with momentum, which moves faster through the posterior (Chen, Fox and Guestrin 2014).

    v <- v - h * grad U(w);   w <- w + h/2 * v;   v <- c v + sqrt((1 - c^2) T) * eps;   w <- w + h/2 * v

with c = 1 - friction: the paper's second-order Langevin dynamics, in the symmetric splitting that needs one gradient a
step (BAOAB of Leimkuhler and Matthews 2013, its two half kicks at one place merged). Without a learning rate, h and a
diagonal mass are found from the data (`adaptation.py`). `fit(learning_rate=r)` is that of SGD with momentum c on the
loss per example, U / N, so `h = sqrt(r / N)`.

On a Gaussian with precision A and full-batch gradients the stationary covariance of the weights is exactly `T A^-1`,
for any step with h^2 a < 4: this splitting has no discretisation bias there. (The update in the paper is too wide by a
relative h^2 a / (2 (2 - friction)).) The noise of batches adds about h^2 V / ((1 - c^2) T), with V the covariance of
the gradient of U; more friction or a smaller rate reduces it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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
    momentum = 1.0 - friction
    velocity = velocity - step * gradient
    theta = theta + 0.5 * step * velocity
    velocity = momentum * velocity + math.sqrt((1.0 - momentum**2) * temperature) * eps
    return theta + 0.5 * step * velocity, velocity


class SGHMC(StochasticGradientMCMC):
    """Stochastic gradient Hamiltonian Monte Carlo: posterior samples from gradient descent with momentum and noise.

        v <- v - h grad U(w);   w <- w + h/2 v;   v <- c v + sqrt((1 - c^2) T) eps;   w <- w + h/2 v

    with c = 1 - friction. The step h and a diagonal mass are found from the data and frozen before the first sample.
    `fit(learning_rate=r)` is that of SGD with momentum c on the loss per example instead, so h = sqrt(r / N).

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`. A noise that has a prior,
            such as `gaussian:half-cauchy(1)`, is sampled with the weights.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            It must be proper; its scales may have hyperpriors. None is `normal:1`.
        chains: the number of chains, computed as one batch. None is 4, or 1 for a network of more than 100,000 weights.
        samples: the number of samples stored per chain, evenly spread after the burn-in.
        burn_in: the share of the steps (of each cycle) that gives no samples. None is until the log joint has stopped
            trending, half of the steps at most; with a learning rate or cycles, half of them.
        cycles: the number of cosine cycles of the step size; None follows `fit(schedule=)`.
        temperature: T of the posterior, exp(-U / T): 1 is Bayes, 0 is plain descent.
        friction: the share of the velocity that is replaced in a step: 1 - momentum.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`. `fresh` by default, so that chains differ; `given` starts all of them
            from the same weights.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Raises:
        ValueError: an argument is out of range, the prior is improper, or the samples do not fit in memory.

    References:
        T. Chen, E. Fox and C. Guestrin, "Stochastic Gradient Hamiltonian Monte Carlo", 2014, arXiv:1402.4102.

        R. Zhang, C. Li, J. Zhang, C. Chen and A. G. Wilson, "Cyclical Stochastic Gradient MCMC for Bayesian Deep
        Learning", 2020, arXiv:1902.03932 (`cycles`).

    Examples:
        >>> sghmc = bf.SGHMC(net, "categorical", prior="normal:1", chains=2, samples=20)
        >>> history = sghmc.fit((x, y), epochs=1000, progress=False)
        >>> sghmc.samples_by_chain.shape  # [chains, samples, P]
        torch.Size([2, 20, 123])
        >>> history["r_hat"][-1] < 1.2  # of predictions
        True
        >>> bool(sghmc.predict(x).epistemic.max() > 0)  # the samples disagree somewhere
        True

    """

    name: ClassVar[str] = "sghmc"
    capturable: ClassVar[bool] = True
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all", "stored": "all"})

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        chains: int | None = None,
        samples: int = 100,
        burn_in: float | None = None,
        cycles: int | None = None,
        temperature: float = 1.0,
        friction: float = 0.1,
        bayesian: str | type | Sequence[str | type] = "all",
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
        """Those of all chains, and the friction."""
        return {**super().settings(), "friction": self.friction}

    def largest_step(self, curvature: float, batch_noise: float) -> float:
        """The largest h^2 whose bias is small.

        Three eighths of what is stable. Independent batches would widen a variance by at most a quarter, those of an
        epoch, drawn without replacement, widen it less.

        Args:
            curvature: the largest of U, in coordinates in which the mass is one.
            batch_noise: the variance of the gradient of U over batches, in the same coordinates.

        """
        friction = 1.0 - (1.0 - self.friction) ** 2
        heated = 0.25 * friction * self.heat / batch_noise if batch_noise and self.heat else math.inf
        return min(1.5 / curvature, heated)

    def move(self, x: Tensor, gradient: Tensor, eps: Tensor, rate: float, heat: float, state: dict[str, Any]) -> None:
        """Take one step of the underdamped dynamics in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of U, of the same shape.
            eps: standard normals, of the same shape.
            rate: the learning rate.
            heat: the temperature T.
            state: the velocity.

        """
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

    def first_state(self, x: Tensor, state: dict[str, Any]) -> list[Tensor]:
        """The velocity, zero at the start.

        Args:
            x: weights or log scales, `[chains, ...]`.
            state: what it keeps, by name.

        """
        return [state.setdefault("velocity", torch.zeros_like(x))]

    def coefficients(self, rate: float, heat: float) -> tuple[float, ...]:
        """The factor of the gradient of the loss per example, half of the step h, and the factor of the noise.

        Args:
            rate: the learning rate.
            heat: the temperature T.

        """
        step, momentum = math.sqrt(rate / self.n_data), 1.0 - self.friction
        return step * self.n_data, 0.5 * step, math.sqrt((1.0 - momentum**2) * heat)

    def move_captured(
        self, x: Tensor, gradient: Tensor, eps: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]
    ) -> None:
        """The step of the underdamped dynamics as a part of a compiled step, in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of the loss per example, of the same shape.
            eps: standard normals, of the same shape.
            state: the velocity.
            numbers: the coefficients, as tensors.

        """
        (velocity,), (kick, half, spread) = state, numbers
        kicked = velocity - kick * gradient
        drifted = (1.0 - self.friction) * kicked + spread * eps
        x.copy_(x + half * (kicked + drifted))
        velocity.copy_(drifted)
