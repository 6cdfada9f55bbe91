"""Two classes, `p(1) = sigmoid(output)`, for one target or each of several (tags that may hold together)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.likelihoods.classification import Classification
from bayesify.likelihoods.shapes import aligned, check_dims, check_rows, one_number, real, target_tensor


class Bernoulli(Classification):
    """Two classes, 0 and 1, for one target or each of several: `p(1) = sigmoid(output)`.

    Examples:
        >>> bf.likelihoods.Bernoulli().probs(torch.tensor([[[0.0], [2.0]]]))
        tensor([[[0.5000, 0.5000],
                 [0.1192, 0.8808]]])

    """

    name = "bernoulli"

    def width(self, targets: Tensor) -> int:
        """The number of outputs: one per target.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the output layer.

        """
        return targets.shape[1] if targets.ndim > 1 else 1

    def prepare(self, targets: Any) -> Tensor:
        """Targets of 0 and 1 as an int64 tensor.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Targets `[batch, ...]`.

        Raises:
            ValueError: if a target is neither 0 nor 1.

        """
        labels = target_tensor(targets)
        if labels.is_complex() or not bool(((labels == 0) | (labels == 1)).all()):
            raise ValueError(
                f"{type(self).__name__} needs targets of 0 and 1, got {_first_other_than_zero_and_one(labels)}"
            )
        return labels.long()

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless there is one output per target.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """
        check_rows(outputs, targets)
        check_dims(self, outputs, targets, 1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """`log sigmoid(-output)` and `log sigmoid(output)`.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Logarithms `[draws, batch, *dims, 2]`.

        """
        logits = one_number(real(outputs))
        return functional.logsigmoid(torch.stack((-logits, logits), -1))

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """`sigmoid(-output)` and `sigmoid(output)`.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Probabilities `[draws, batch, *dims, 2]`.

        """
        logits = one_number(real(outputs))
        return torch.sigmoid(torch.stack((-logits, logits), -1))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability of the targets, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        logits, labels = aligned(real(outputs), targets)
        return functional.logsigmoid(torch.where(labels == 1, logits, -logits)).sum(-1)


class MultiLabel(Bernoulli):
    """Several tags, each of which may hold or not: one output per tag, `p(tag) = sigmoid(output)`.

    It is `Bernoulli` for targets `[batch, tags]` of 0 and 1. Labels from 0 are refused, which would be one of several
    classes instead.

    Examples:
        >>> likelihood = bf.likelihoods.MultiLabel()
        >>> likelihood.width(likelihood.prepare([[1, 0, 1], [0, 0, 1]]))
        3

    """

    name = "multi-label"

    def prepare(self, targets: Any) -> Tensor:
        """Targets of 0 and 1 as an int64 tensor, one column per tag.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Targets `[batch, tags]`.

        Raises:
            ValueError: if a target is neither 0 nor 1, or there is no column per tag.

        """
        tags = super().prepare(targets)
        if tags.ndim < 2:
            raise ValueError(
                "MultiLabel needs one column of 0 and 1 per tag, got one number per example: use bernoulli or "
                "categorical"
            )
        return tags


def _first_other_than_zero_and_one(labels: Tensor) -> str:
    return str(labels[(labels != 0) & (labels != 1)][0].item())
