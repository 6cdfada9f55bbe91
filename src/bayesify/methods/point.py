"""The point estimate: one set of weights, by maximum likelihood or, with a prior, maximum a posteriori.

    loss = mean negative log-likelihood of the batch - pi_i * log p(w) / B_i

It is the baseline of every comparison. Its epistemic uncertainty is zero by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from bayesify.functional import initialisation
from bayesify.likelihoods import Gaussian, Likelihood
from bayesify.likelihoods.noise_prior import NoisePrior
from bayesify.methods.method import Method, NetworkLike, PriorLike
from bayesify.methods.objective import Objective
from bayesify.training.batches import Batch


class PointEstimate(Method):
    """One set of weights: maximum likelihood or, with a prior, maximum a posteriori.

        loss = mean negative log-likelihood of the batch - log p(w) / N

    A noise that has a prior is learned at the mode of its posterior: - log p(sigma) / N is added to the loss.

    It has no posterior, so its epistemic uncertainty is zero. It is the baseline of every comparison.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        prior: a prior, its text form such as `normal:1`, or a mapping from name patterns to priors.
            None is maximum likelihood; a prior makes it maximum a posteriori.
        bayesian: which weights are random: `all` (normalisation layers excepted), `last_layer`, `last_block`, `lora`,
            name patterns such as `head.*`, or a list of these. Here they are the weights that have the prior.
        output: picks one tensor where the network returns several: a key, an index, an attribute or a function.
        start: where the weights start: `given` (as they are in the network), `fresh` (initialised again), `glorot`,
            `normal:0.1` or `uniform:-0.2,0.2`.
        seed: of the starting weights; `fit(seed=)` sets the seed of training.

    Examples:
        >>> point = bf.PointEstimate(net, "categorical", prior="normal:1")
        >>> history = point.fit((x, y), epochs=30, learning_rate=0.05, progress=False)
        >>> predictive = point.predict(x)
        >>> float((predictive.probs.argmax(-1) == y).float().mean())
        1.0
        >>> float(predictive.epistemic.max())
        0.0

    """

    name: ClassVar[str] = "point"
    holds_weights: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})
    sharded: ClassVar[Mapping[str, str]] = MappingProxyType({"theta": "all"})
    capturable: ClassVar[bool] = True
    noise_kind: ClassVar[str | None] = "learned"

    def __init__(
        self,
        network: NetworkLike,
        likelihood: Likelihood | str,
        *,
        prior: PriorLike | None = None,
        bayesian: str | type | Sequence[str | type] = "all",
        output: str | int | Callable[[Any], Tensor] | None = None,
        start: str = "given",
        seed: int = 0,
    ) -> None:
        super().__init__(network, likelihood, prior=prior, bayesian=bayesian, output=output, start=start, seed=seed)
        self.theta = nn.Parameter(initialisation.start_weights(self.network, start, seed))
        self.log_noise: nn.Parameter | None
        self.register_parameter("log_noise", start_log_noise(self.likelihood, self.theta, 1))

    def objective(self, batches: list[Batch], *, step: int, share: float, draws: int = 1) -> Objective:
        """The negative log-likelihood of the batch and minus the log prior density of the weights.

        Args:
            batches: one batch `(x, y)` for each member.
            step: the number of the training step; it decides the noise.
            share: the part of the penalty that this batch carries: its examples divided by all of them, by default.
            draws: weight draws to average over.

        Returns:
            The loss, its two parts, and the buffers after the pass.

        """
        ((x, y),) = batches
        outputs, buffers = self._training_outputs(x, step, 1)
        nll, penalty = self._nll(outputs, y, step, log_noise=self.log_noise), self._penalty(step, 1)
        return Objective(nll + share / y.shape[0] * penalty, nll, penalty, buffers)

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """The one set of weights, once for each draw.

        Args:
            draws: the numbers of the draws; a draw is the same alone and among others.
            seed: of the draws.

        Returns:
            One set of weights per draw, `[draws, P]`.

        """
        return self.theta.detach().expand(len(draws), -1)

    def log_noise_of(self, draws: Sequence[int], seed: int, by: str = "draws") -> Tensor:
        """The logarithm of the noise, where it has a prior: its mode, which all draws share.

        Args:
            draws: not used.
            seed: not used.
            by: not used.

        Returns:
            The logarithm, `[1]`.

        """
        assert self.log_noise is not None
        return self.log_noise.detach()

    @property
    def mean_weights(self) -> Tensor:
        """The weights, `[P]`."""
        return self.theta.detach()

    @property
    def held(self) -> int | None:
        """One: all draws are the same."""
        return 1

    def _penalty(self, step: int, draws: int) -> Tensor:
        if self.prior is None:
            penalty = self.theta.new_zeros(())
        else:
            penalty = -self.prior.log_density(self.theta[: self._random_size])
        return penalty if self.log_noise is None else penalty + noise_penalty(self.noise_prior, self.log_noise)

    def _training_outputs(self, x: Any, step: int, draws: int) -> tuple[Tensor, dict[str, Tensor]]:
        dropout = self._training_dropout(x, step, draws)
        return self._run(self.theta.expand(draws, -1), x, dropout)


def start_log_noise(likelihood: Likelihood, like: Tensor, count: int) -> nn.Parameter | None:
    """Where the log noise of `count` networks starts, `[count]`; None where the noise has no prior."""
    if not isinstance(likelihood, Gaussian) or likelihood.noise_prior is None:
        return None
    return nn.Parameter(like.detach().new_full((count,), likelihood.start_log_noise))


def noise_penalty(prior: NoisePrior | None, log_noise: Tensor) -> Tensor:
    """Minus the log density of the noise itself, not of its logarithm: under a flat prior it changes nothing."""
    assert prior is not None
    return -prior.log_density_of_noise(log_noise).sum()
