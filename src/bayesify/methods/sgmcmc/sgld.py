"""SGLD: gradient descent with the noise that makes it a diffusion through the posterior (Welling and Teh 2011).

    w <- w - step / 2 * grad U(w) + sqrt(step * T) * eps,    U = -log posterior, estimated from a batch

Without a learning rate, the step and a diagonal mass are found from the data (`adaptation.py`). `fit(learning_rate=r)`
is a learning rate of the loss per example, U / N, so `step = 2 r / N`: descent as fast as SGD at the rate r, and noise
of variance `2 r T / N`. With twice the data, the same r descends as fast, with half the noise.

On a Gaussian with precision A and full-batch gradients the stationary covariance is `T A^-1 (I - step A / 4)^-1`. In a
direction of precision a it is too wide by a relative step * a / 4, and the step must stay below 4 / a. The noise of
batches adds about step * V / (4 T), with V the covariance of the gradient of U (Mandt, Hoffman and Blei 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC


def sgld_update(theta: Tensor, gradient: Tensor, eps: Tensor, *, step: float, temperature: float) -> Tensor:
    """One step from weights `theta`, the gradient of U there, and standard normals `eps`, all of one shape."""
    return theta - 0.5 * step * gradient + math.sqrt(step * temperature) * eps


class SGLD(StochasticGradientMCMC):
    """Stochastic gradient Langevin dynamics: posterior samples from gradient descent with added noise.

        w <- w - step / 2 * grad U(w) + sqrt(step * T) * eps,    U = -log posterior, estimated from a batch

    The step size and a diagonal mass are found from the data and frozen before the first sample. `fit(learning_rate=r)`
    is a learning rate of the loss per example instead, so step = 2 r / N. With `cycles` the step size follows cosine
    cycles and samples come from the second part of each.

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
        M. Welling and Y. W. Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", 2011.

        R. Zhang, C. Li, J. Zhang, C. Chen and A. G. Wilson, "Cyclical Stochastic Gradient MCMC for Bayesian Deep
        Learning", 2020, arXiv:1902.03932 (`cycles`).

    Examples:
        >>> sgld = bf.SGLD(net, "categorical", prior="normal:1", chains=2, samples=10)
        >>> history = sgld.fit((x, y), epochs=600, learning_rate=0.5, progress=False)
        >>> sgld.samples_by_chain.shape  # [chains, samples, P]
        torch.Size([2, 10, 123])
        >>> sgld.predict(x).outputs.shape  # all 20 samples
        torch.Size([20, 60, 3])

    """

    name: ClassVar[str] = "sgld"
    capturable: ClassVar[bool] = True
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all", "stored": "all"})
    usual_steps: ClassVar[int] = 8000

    def largest_step(self, curvature: float, batch_noise: float) -> float:
        """The largest h^2 = step / 2 whose bias is small.

        In the stiffest direction the variance is too wide by 18%. Independent batches would add at most a quarter,
        those of an epoch, drawn without replacement, add less.

        Args:
            curvature: the largest of U, in coordinates in which the mass is one.
            batch_noise: the variance of the gradient of U over batches, in the same coordinates.

        """
        return min(0.3 / curvature, 0.5 * self.heat / batch_noise if batch_noise and self.heat else math.inf)

    def move(self, x: Tensor, gradient: Tensor, eps: Tensor, rate: float, heat: float, state: dict[str, Any]) -> None:
        """Take one Langevin step in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of U, of the same shape.
            eps: standard normals, of the same shape.
            rate: the learning rate.
            heat: the temperature T.
            state: not used.

        """
        x.copy_(sgld_update(x, gradient, eps, step=2.0 * rate / self.n_data, temperature=heat))

    def coefficients(self, rate: float, heat: float) -> tuple[float, ...]:
        """The factors of the gradient of the loss per example and of the noise.

        Args:
            rate: the learning rate.
            heat: the temperature T.

        """
        return rate, math.sqrt(2.0 * rate / self.n_data * heat)

    def move_captured(
        self, x: Tensor, gradient: Tensor, eps: Tensor, state: Sequence[Tensor], numbers: Sequence[Tensor]
    ) -> None:
        """The Langevin step as a part of a compiled step, in place.

        Args:
            x: weights or log scales, `[chains, ...]`.
            gradient: of the loss per example, of the same shape.
            eps: standard normals, of the same shape.
            state: not used.
            numbers: the coefficients, as tensors.

        """
        descent, spread = numbers
        x.copy_(x - descent * gradient + spread * eps)
