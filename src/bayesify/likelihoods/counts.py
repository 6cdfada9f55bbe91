"""What likelihoods over counts have in common: targets are whole numbers from 0."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bayesify.likelihoods.regression import Regression


class Counts(Regression):
    """The base class of likelihoods over counts."""

    discrete = True

    def prepare(self, targets: Any) -> Tensor:
        """Counts as a floating tensor.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Counts `[batch, ...]`.

        Raises:
            ValueError: if a target is not a whole number from 0.

        """
        counts = super().prepare(targets)
        wrong = counts[(counts < 0) | (counts != counts.floor())]
        if len(wrong):
            raise ValueError(f"{type(self).__name__} needs whole numbers from 0, got {wrong[0].item():g}")
        return counts
