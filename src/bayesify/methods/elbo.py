"""The ELBO of a fitted posterior, with its Monte Carlo error: a lower bound of the log evidence, in nats.

    ELBO = E_q[sum over all N examples of log p(y | x, w)] - KL(q || p)

It is the number that variational training maximises (at a temperature of 1), and the one that compares priors, families
and networks on the same data: higher is better. Weights that are not random are part of the model, not of q.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bayesify.training.warnings import brief


@dataclass(frozen=True)
class ELBO:
    """An estimate of the ELBO over all training examples, in nats; higher is better.

    Args:
        value: the ELBO: `expected_log_likelihood - kl`.
        standard_error: of `value`, over the draws, and over the examples where only some were used.
        expected_log_likelihood: of all N examples, averaged over the posterior.
        kl: from the posterior to the prior. Where it has no closed form it is averaged over the draws.
        draws: posterior draws.
        examples: examples that were used.
        n_data: N, the number of examples that `value` is about.

    Examples:
        >>> bound = bnn.elbo((x, y), draws=20)
        >>> abs(bound.value - (bound.expected_log_likelihood - bound.kl)) < 1e-6
        True
        >>> bound.examples, bound.draws, bound.standard_error > 0
        (60, 20, True)

    """

    value: float
    standard_error: float
    expected_log_likelihood: float
    kl: float
    draws: int
    examples: int
    n_data: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{brief(self.value)} nats, standard error {self.standard_error:.2g} (expected log-likelihood "
            f"{brief(self.expected_log_likelihood)}, KL {brief(self.kl)})"
        )
