"""SGLD: gradient descent with as much noise as a diffusion needs to visit the posterior (Welling and Teh 2011).

    w <- w - step / 2 * grad U(w) + sqrt(step * T) * eps,    U = -log posterior, estimated from a batch

`fit(learning_rate=r)` is a learning rate of the loss per example, U / N, so `step = 2 r / N`: descent as fast as SGD at
the rate r, and noise of variance `2 r T / N`. With twice the data, the same r takes the same way and half the noise.

On a Gaussian with precision A and whole gradients the stationary covariance is `T A^-1 (I - step A / 4)^-1`: too wide
by about step * a / 4 of itself in a direction of precision a, and the step must stay below 4 / a. The noise of batches
adds to it: with gradient covariance V of U, about step * V / (4 T) in relative terms (Mandt, Hoffman and Blei 2017).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from bayesify.methods.sgmcmc.chains import StochasticGradientMCMC


def sgld_update(theta: Tensor, gradient: Tensor, eps: Tensor, *, step: float, temperature: float) -> Tensor:
    """One step from weights `theta`, the gradient of U there, and standard normals `eps`, all of one shape."""
    return theta - 0.5 * step * gradient + math.sqrt(step * temperature) * eps


class SGLD(StochasticGradientMCMC):
    """Stochastic gradient Langevin dynamics; with `cycles`, the cyclical one of Zhang et al. 2020.

    Args:
        chains: how many, run together.
        samples: stored per chain.
        burn_in: the share of the steps (of each cycle) that gives no samples.
        cycles: None for the given schedule; a number for that many cosine cycles.
        temperature: of the whole posterior, exp(-U / T): 1 is Bayes, 0 is descent.
        start: `fresh` by default, so that chains differ; `given` starts all from the given weights.

    """

    name: ClassVar[str] = "sgld"

    def move(self, x: Tensor, gradient: Tensor, eps: Tensor, rate: float, heat: float, state: dict[str, Any]) -> None:
        x.copy_(sgld_update(x, gradient, eps, step=2.0 * rate / self.n_data, temperature=heat))
