"""What every likelihood over numbers has: moments, distribution function and quantiles of each draw.

A likelihood without a formula for its quantiles finds them by bisection between the bounds of Cantelli's inequality,
`mean - s * sqrt((1 - q) / q)` and `mean + s * sqrt(q / (1 - q))`.
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
    """The base class of likelihoods over numbers, `[draws, batch]`, or `[draws, batch, *dims]` for several per example.

    `discrete` says whether targets are counts. `parameters_per_target` is the number of outputs per target.

    Examples:
        >>> likelihood = bf.likelihoods.parse("poisson")
        >>> isinstance(likelihood, bf.likelihoods.Regression), likelihood.discrete
        (True, True)
        >>> likelihood.mean(torch.zeros(3, 5, 1)).shape
        torch.Size([3, 5])

    """

    kind = "regression"
    discrete: ClassVar[bool] = False
    parameters_per_target: int = 1

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """The expected target of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """

    @abstractmethod
    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the target around the mean of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """

    @abstractmethod
    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The distribution function: the probability of a target at most `values`, of each draw.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles: the smallest value with `cdf >= levels`, of each draw.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        mean, spread = self.mean(outputs), self.noise_variance(outputs).sqrt()
        low = torch.full_like(mean, -1.0) if self.discrete else mean - spread * ((1 - levels) / levels).sqrt()
        high = mean + spread * (levels / (1 - levels)).sqrt()
        return bisect(lambda values: self.cdf(outputs, values), levels, low, high, self.discrete)

    def width(self, targets: Tensor) -> int:
        """The number of outputs: the parameters per target times the targets of an example.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the output layer.

        """
        return self.parameters_per_target * (targets.shape[1] if targets.ndim > 1 else 1)

    def prepare(self, targets: Any) -> Tensor:
        """Targets as a floating tensor; large integers become float64.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Targets `[batch, ...]`.

        Raises:
            ValueError: if a target is not finite.

        """
        numbers = target_tensor(targets)
        if not numbers.is_floating_point() or numbers.dtype in {torch.float16, torch.bfloat16}:
            kind = torch.get_default_dtype()
            # A float32 has 24 bits: larger integers need a float64.
            large = not numbers.is_floating_point() and not torch.equal(numbers.to(kind).long(), numbers.long())
            numbers = numbers.to(torch.float64 if large else kind)
        if not bool(torch.isfinite(numbers).all()):
            raise ValueError(f"targets must be finite, got {_not_finite(numbers)}: remove or fill those examples")
        return numbers

    def transformed(self, targets: Tensor) -> Tensor:
        """The numbers that `location` and `scale` standardise: the targets, or what a likelihood turns them into.

        Args:
            targets: prepared targets.

        Returns:
            Numbers of the same shape.

        """
        return targets

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless there are `parameters_per_target` outputs per target.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """
        check_rows(outputs, targets)
        check_dims(self, outputs, targets, self.parameters_per_target)


def bisect(
    cdf: Callable[[Tensor], Tensor], levels: Tensor | float, low: Tensor, high: Tensor, discrete: bool = False
) -> Tensor:
    """The smallest value in `(low, high]` with `cdf >= levels`, true at `high` and, for counts, not true at `low`."""
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
