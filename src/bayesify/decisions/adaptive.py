"""Adaptive conformal intervals for a series: the level follows the misses, so that the long-run coverage is right.

At each time the interval has the quantile of level `1 - a_t` of the latest scores `|y - mean| / std`, and after the
target is seen `a_(t+1) = a_t + step * (alpha - miss_t)`. Whatever the series does, after T steps

    |share of misses - alpha| <= (max(alpha, 1 - alpha) + step) / (step * T)

(Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021, arXiv:2106.00170). That is a guarantee
about the average over time, not about a single interval.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayesify.decisions.provenance import share
from bayesify.errors import at_least, positive
from bayesify.predictive import Predictive


@dataclass(frozen=True)
class AdaptiveIntervals:
    """Intervals of a series in the order of time.

    Args:
        lower: lower ends, `[n]`; minus infinity while too few scores are known or the level is above all of them.
        upper: upper ends, `[n]`. Where `lower` is above `upper`, the interval is empty.
        covered: whether each interval contains its target, `[n]` bool.
        levels: the level `a_t` of each interval, `[n]`.
        bound: how far the share of misses can be from `alpha`, by the theorem.

    """

    lower: Tensor
    upper: Tensor
    covered: Tensor
    levels: Tensor
    bound: float


class AdaptiveConformal:
    """Intervals for a series, one at a time: `interval` before the target is known, `update` after.

    Args:
        alpha: the share of targets that may be missed in the long run.
        step: how fast the level follows the misses; larger adapts faster and varies more.
        window: number of latest scores that the quantile is taken of.

    Raises:
        ValueError: a number is out of its range.

    Examples:
        >>> from bayesify.decisions import AdaptiveConformal
        >>> adaptive = AdaptiveConformal(alpha=0.1, step=0.05)
        >>> for y_now in [0.1, -0.2, 0.3] * 30:
        ...     lower, upper = adaptive.interval(mean=0.0, std=1.0)
        ...     missed = adaptive.update(y_now)
        >>> (lower, upper)
        (-0.3, 0.3)

    """

    def __init__(self, alpha: float = 0.1, step: float = 0.02, window: int = 500) -> None:
        self.alpha, self.step = share("alpha", alpha), positive("step", step)
        self.level = self.alpha
        self._scores: deque[float] = deque(maxlen=at_least("window", window, 10))
        self._now: tuple[float, float, float, float] | None = None

    def interval(self, mean: float, std: float) -> tuple[float, float]:
        """The interval of the next target.

        Args:
            mean: its predicted mean.
            std: its predicted standard deviation.

        Returns:
            Lower and upper end; infinite while too little is known, and empty (lower above upper) where the level is
            used up.

        Raises:
            ValueError: a number is not finite, or the standard deviation is negative.

        """
        if not (math.isfinite(mean) and 0 <= std < math.inf):
            raise ValueError(f"mean and std must be finite, std at least 0, got {mean!r} and {std!r}")
        width = self._quantile() * std
        lower, upper = (mean - width, mean + width) if width >= 0 else (math.inf, -math.inf)
        self._now = (mean, std, lower, upper)
        return lower, upper

    def update(self, target: float) -> bool:
        """Learn the target of the last interval.

        Args:
            target: the number that was predicted.

        Returns:
            Whether the interval missed it.

        Raises:
            ValueError: `interval` was not called before, or the target is not finite.

        """
        if self._now is None:
            raise ValueError("update needs an interval first: call interval(mean, std) before each target")
        if not math.isfinite(target):
            raise ValueError(f"a target must be a finite number, got {target!r}")
        (mean, std, lower, upper), self._now = self._now, None
        missed = not lower <= target <= upper
        self._scores.append(abs(target - mean) / max(std, 1e-300))
        self.level += self.step * (self.alpha - missed)
        return missed

    def _quantile(self) -> float:
        """The quantile of the latest scores at `1 - level`; minus one for the empty interval."""
        if self.level >= 1:
            return -1.0
        place = math.ceil((len(self._scores) + 1) * (1 - self.level) - 1e-9)
        if self.level <= 0 or place > len(self._scores):
            return math.inf
        return float(np.partition(np.array(self._scores), max(place, 1) - 1)[max(place, 1) - 1])


def adaptive_conformal(
    predictive: Predictive, targets: Tensor, alpha: float = 0.1, step: float = 0.02, window: int = 500
) -> AdaptiveIntervals:
    """Adaptive conformal intervals of a whole series, each made from the targets before it.

    Args:
        predictive: predictions of numbers in the order of time.
        targets: the series, `[n]`.
        alpha: the share of targets that may be missed in the long run.
        step: how fast the level follows the misses.
        window: number of latest scores that the quantile is taken of.

    Returns:
        The intervals, which of them cover, and the bound of the theorem.

    Raises:
        ValueError: the prediction is one of classes, or the numbers of targets and predictions differ.

    Examples:
        >>> from bayesify.decisions import adaptive_conformal
        >>> line = bf.PointEstimate(bf.networks.mlp(2, 1, units=4), "gaussian:0.5")
        >>> made = adaptive_conformal(line.predict(x), x[:, 0], alpha=0.2, step=0.1)
        >>> bool(abs(float((~made.covered).double().mean()) - 0.2) <= made.bound)
        True

    """
    if predictive.kind != "regression" or predictive.mean.ndim != 1:
        raise ValueError("adaptive conformal intervals need predictions of one number per input")
    targets = torch.as_tensor(targets)
    if len(targets) != len(predictive):
        raise ValueError(f"targets must have one number per input, {len(predictive)}, got {len(targets)}")
    if predictive.of_logs is not None:
        logs = predictive.likelihood.prepare(targets).log()
        made = adaptive_conformal(predictive.of_logs, logs, alpha, step, window)
        return replace(made, lower=made.lower.exp(), upper=made.upper.exp())
    adaptive = AdaptiveConformal(alpha, step, window)
    rows = []
    for mean, std, target in zip(
        predictive.mean.tolist(), predictive.std.tolist(), targets.reshape(-1).tolist(), strict=True
    ):
        level = adaptive.level
        lower, upper = adaptive.interval(mean, std)
        rows.append((lower, upper, level, not adaptive.update(target)))
    lowers, uppers, levels, covered = zip(*rows, strict=True)
    bound = (max(alpha, 1 - alpha) + step) / (step * len(rows))
    return AdaptiveIntervals(
        torch.tensor(lowers), torch.tensor(uppers), torch.tensor(covered), torch.tensor(levels), bound
    )
