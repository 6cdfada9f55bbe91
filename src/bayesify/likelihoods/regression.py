"""What every distribution over numbers offers: moments, distribution function and quantiles, draw by draw.

Quantiles are found by bisection between the bounds of Cantelli's inequality, `mean - s * sqrt((1 - q) / q)` and
`mean + s * sqrt(q / (1 - q))`, where a likelihood has no formula for them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.shapes import check_dims, check_rows, target_tensor

_HALVINGS = 60


class Regression(Likelihood):
    """A distribution over numbers, `[draws, batch]`, or `[draws, batch, *dims]` for several per example."""

    kind = "regression"
    discrete: ClassVar[bool] = False
    parameters_per_target: int = 1

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """The expected target of each draw."""

    @abstractmethod
    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the target around that mean."""

    @abstractmethod
    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The chance of a target at most `values` (shaped like one draw's mean, or all draws') under each draw."""

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The smallest value with `cdf >= levels` (shaped like one draw's mean, or all draws') under each draw."""
        mean, spread = self.mean(outputs), self.noise_variance(outputs).sqrt()
        low = torch.full_like(mean, -1.0) if self.discrete else mean - spread * ((1 - levels) / levels).sqrt()
        high = mean + spread * (levels / (1 - levels)).sqrt()
        return bisect(lambda values: self.cdf(outputs, values), levels, low, high, self.discrete)

    def width(self, targets: Tensor) -> int:
        return self.parameters_per_target * (targets.shape[1] if targets.ndim > 1 else 1)

    def prepare(self, targets: Any) -> Tensor:
        numbers = target_tensor(targets)
        if not numbers.is_floating_point() or numbers.dtype in {torch.float16, torch.bfloat16}:
            kind = torch.get_default_dtype()
            # A single-precision number has 24 bits: the last digits of larger whole numbers need a double.
            large = not numbers.is_floating_point() and not torch.equal(numbers.to(kind).long(), numbers.long())
            numbers = numbers.to(torch.float64 if large else kind)
        if not bool(torch.isfinite(numbers).all()):
            raise ValueError(f"targets hold {_not_finite(numbers)}; remove or fill those examples")
        return numbers

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        check_rows(outputs, targets)
        check_dims(self, outputs, targets, self.parameters_per_target)


def bisect(
    cdf: Callable[[Tensor], Tensor], levels: Tensor | float, low: Tensor, high: Tensor, discrete: bool = False
) -> Tensor:
    """The smallest value in `(low, high]` that reaches `levels`; `high` is known to, and for counts `low` not to."""
    if discrete:
        low, high = low.floor(), high.ceil()
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if discrete:
            if not bool((high - low > 1).any()):
                break
            middle = middle.floor()
        below = cdf(middle) < levels
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def _not_finite(numbers: Tensor) -> str:
    nan, infinite = int(torch.isnan(numbers).sum()), int(torch.isinf(numbers).sum())
    return " and ".join(f"{count} {what}" for count, what in ((nan, "NaN"), (infinite, "infinite")) if count)
