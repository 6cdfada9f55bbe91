"""The point estimate: one set of weights, by maximum likelihood or, with a prior, maximum a posteriori.

    loss = mean negative log-likelihood of the batch - pi_i * log p(w) / B_i

It is the yardstick: it has an answer for everything, and its epistemic uncertainty is zero by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from bayesify.functional import initialisation
from bayesify.likelihoods import Likelihood
from bayesify.methods.method import Method, NetworkLike, Objective, PriorLike
from bayesify.training.examples import Batch


class PointEstimate(Method):
    """Maximum likelihood; with a prior, maximum a posteriori."""

    name: ClassVar[str] = "point"
    capturable: ClassVar[bool] = True

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | Sequence[str] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.theta = nn.Parameter(initialisation.start_weights(self.network, start, seed))

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        ((x, y),) = batches
        outputs, buffers = self._training_outputs(x, step, 1)
        nll, penalty = self._nll(outputs, y, step), self._penalty(step, 1)
        return Objective(nll + share / y.shape[0] * penalty, nll, penalty, buffers)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        return self.theta.detach().expand(len(draws), -1)

    @property
    def mean_weights(self) -> Tensor:
        return self.theta.detach()

    @property
    def held(self) -> int | None:
        return 1

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.prior is None:
            return self.theta.new_zeros(())
        return -self.prior.log_density(self.theta[: self.network.random_size])

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        dropout = self._training_dropout(x, step, draws)
        return self.network.outputs(self.theta.expand(draws, -1), x, train=True, dropout=dropout)
