"""Whether ranks are uniform: a chi-square test of their histogram and Kolmogorov's test of their distribution."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats
from torch import Tensor

# A method fails if a p value is below this, divided by the number of p values.
LEVEL = 0.01
BINS = 20
_EVEN, _SHIFTED = 12**-0.5, 0.08


@dataclass(frozen=True)
class Uniformity:
    """Ranks as shares of the number of draws: their mean and spread, and the p values of two tests."""

    mean: float
    std: float
    chi_square: float
    ecdf: float

    @property
    def words(self) -> str:
        """What is wrong with ranks that are not uniform."""
        if abs(self.mean - 0.5) > _SHIFTED:
            return "the posterior is shifted"
        if self.std > 1.05 * _EVEN:
            return "the posterior is too narrow"
        return "the posterior is too wide" if self.std < 0.95 * _EVEN else "the ranks are not uniform"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def judge(ranks: Tensor, draws: int) -> Uniformity:
    """Test ranks of independent repetitions.

    Args:
        ranks: the number of draws below the truth, from 0 to `draws`, `[repetitions]`.
        draws: posterior draws of each repetition; draws + 1 must be a multiple of the number of bins.

    Returns:
        The p values, and the mean and the standard deviation of the shares.

    """
    if (draws + 1) % BINS:
        raise ValueError(f"draws + 1 must be a multiple of {BINS}, so that bins are equal, got draws={draws}")
    values = ranks.double().numpy()
    counts, _ = np.histogram(values, BINS, (-0.5, draws + 0.5))
    # A rank is a whole number: spread evenly over its unit, a uniform rank is a uniform number.
    spread = (values + np.random.default_rng(0).uniform(size=len(values))) / (draws + 1)
    return Uniformity(
        mean=float((values / draws).mean()),
        std=float((values / draws).std(ddof=1)),
        chi_square=float(stats.chisquare(counts).pvalue),
        ecdf=float(stats.kstest(spread, "uniform").pvalue),
    )


def band(repetitions: int, bins: int, share: float = 0.99) -> tuple[float, float]:
    """The counts between which a bar of a uniform histogram lies with this probability."""
    low, high = stats.binom.interval(share, repetitions, 1 / bins)
    return float(low), float(high)
