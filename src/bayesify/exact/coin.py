"""The exact posterior of a coin: a Beta prior on the probability of heads and Bernoulli tosses give a Beta posterior.

    p(theta) = Beta(a, b)    =>    p(theta | heads, tails) = Beta(a + heads, b + tails)

and the evidence of a given sequence of tosses is `B(a + heads, b + tails) / B(a, b)` (Gelman et al., Bayesian Data
Analysis, section 2.4).
"""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor

from bayesify.errors import at_least, positive


class Coin:
    """The posterior of a coin's probability of heads theta, under a Beta(a, b) prior.

    `observe` adds tosses, `fit` replaces them; both return the coin itself.

    Args:
        a: first parameter of the prior, above 0.
        b: second parameter of the prior, above 0; a = b = 1 is the uniform prior.

    Examples:
        >>> coin = bf.exact.Coin().observe(heads=7, tails=3)
        >>> coin
        Coin(a=1, b=1) after 7 heads and 3 tails
        >>> round(coin.mean, 4), round(coin.log_evidence, 4)
        (0.6667, -7.1854)

    Reference:
        A. Gelman et al., "Bayesian Data Analysis", third edition, 2013, section 2.4.

    """

    def __init__(self, a: float = 1.0, b: float = 1.0) -> None:
        self.prior_a, self.prior_b = positive("a", a), positive("b", b)
        self.heads = self.tails = 0

    def observe(self, heads: int = 0, tails: int = 0) -> Self:
        """Add tosses to those already seen.

        Args:
            heads: how many of the new tosses were heads.
            tails: how many were tails.

        Returns:
            The coin itself.

        """
        self.heads += at_least("heads", heads, 0)
        self.tails += at_least("tails", tails, 0)
        return self

    def fit(self, data: Any) -> Self:
        """Replace all tosses by a new sequence.

        Args:
            data: the tosses, 1 for heads and 0 for tails.

        Returns:
            The coin itself.

        Raises:
            ValueError: a toss is neither 0 nor 1.

        """
        tosses = torch.as_tensor(data).reshape(-1)
        wrong = tosses[(tosses != 0) & (tosses != 1)]
        if len(wrong):
            raise ValueError(f"tosses must be 0 (tails) or 1 (heads), got {wrong[0].item()}")
        self.heads = self.tails = 0
        heads = int(tosses.sum())
        return self.observe(heads, len(tosses) - heads)

    @property
    def a(self) -> float:
        """The first parameter of the posterior."""
        return self.prior_a + self.heads

    @property
    def b(self) -> float:
        """The second parameter of the posterior."""
        return self.prior_b + self.tails

    @property
    def mean(self) -> float:
        """The posterior mean of theta, `a / (a + b)`."""
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> float:
        """The posterior variance of theta."""
        total = self.a + self.b
        return self.a * self.b / (total * total * (total + 1))

    @property
    def std(self) -> float:
        """The posterior standard deviation of theta."""
        return math.sqrt(self.variance)

    @property
    def probability_of_heads(self) -> float:
        """The predictive probability that the next toss is heads: the posterior mean."""
        return self.mean

    @property
    def log_evidence(self) -> float:
        """The log probability of the observed sequence of tosses under the prior."""
        return _log_beta(self.a, self.b) - _log_beta(self.prior_a, self.prior_b)

    def log_density(self, theta: Any) -> Tensor:
        """The log posterior density.

        Args:
            theta: probabilities of heads, of any shape.

        Returns:
            A float64 tensor of the same shape; minus infinity outside [0, 1].

        """
        theta = torch.as_tensor(theta, dtype=torch.float64)
        a, b = (torch.tensor(value - 1, dtype=torch.float64) for value in (self.a, self.b))
        inside = theta.clamp(0, 1)
        # xlogy gives 0 * log 0 = 0, so that a uniform prior has a density at both ends.
        value = torch.xlogy(a, inside) + torch.special.xlog1py(b, -inside) - _log_beta(self.a, self.b)
        return torch.where((theta >= 0) & (theta <= 1), value, -torch.inf)

    def density(self, theta: Any) -> Tensor:
        """The posterior density.

        Args:
            theta: probabilities of heads, of any shape.

        Returns:
            A float64 tensor of the same shape; 0 outside [0, 1].

        """
        return self.log_density(theta).exp()

    def quantile(self, levels: Any) -> Tensor:
        """Posterior quantiles of theta.

        Args:
            levels: probabilities from 0 to 1, of any shape.

        Returns:
            For each level the theta with that posterior mass below it, of the same shape.

        """
        from scipy.special import betaincinv

        return torch.as_tensor(betaincinv(self.a, self.b, check_levels(levels).numpy()), dtype=torch.float64)

    def interval(self, mass: float = 0.95) -> tuple[float, float]:
        """The central posterior interval of theta.

        Args:
            mass: its posterior mass.

        Returns:
            The lower and the upper end.

        """
        low, high = self.quantile([(1 - mass) / 2, (1 + mass) / 2]).tolist()
        return low, high

    def __repr__(self) -> str:
        return f"Coin(a={self.prior_a:g}, b={self.prior_b:g}) after {self.heads} heads and {self.tails} tails"


def check_levels(levels: Any) -> Tensor:
    """Quantile levels as float64, each inside [0, 1]."""
    values = torch.as_tensor(levels, dtype=torch.float64).cpu()
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"quantile levels must lie between 0 and 1, got {values.tolist()}")
    return values


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
