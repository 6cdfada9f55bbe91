"""What every likelihood over classes has: their probabilities, with the class axis last, and entropies."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.shapes import aligned

# Numbers in a vector register of the CPU.
_REGISTER_SIZE = 16


class Classification(Likelihood):
    """The base class of likelihoods over classes, for each example or each of its positions; the class axis is last.

    Examples:
        >>> likelihood = bf.likelihoods.Categorical()
        >>> isinstance(likelihood, bf.likelihoods.Classification), likelihood.kind
        (True, 'classification')
        >>> likelihood.probs(torch.zeros(1, 1, 4))
        tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]])

    """

    kind = "classification"

    @abstractmethod
    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The logarithms of the class probabilities of each draw.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            Logarithms `[draws, batch, *dims, classes]`.

        """

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The class probabilities of each draw.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            Probabilities `[draws, batch, *dims, classes]`.

        """
        return self.log_probs(outputs, keys).exp()

    def totals(self, outputs: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sums over draws of the class probabilities and of their entropies.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            Two tensors, `[batch, *dims, classes]` and `[batch, *dims]`.

        """
        probs = self.probs(outputs, keys)
        return probs.sum(0), entropy(probs).sum(0)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability `log p(y)` of the labels, summed over positions.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: noise keys `[draws, 2]` of a noisy likelihood; others ignore them.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        log_probs, labels = aligned(self.log_probs(outputs, keys), targets, trailing=1)
        chosen = log_probs.gather(-1, labels.long().expand(log_probs.shape[:-1]).unsqueeze(-1))
        return chosen.squeeze(-1).sum(-1)


def softmax(logits: Tensor) -> Tensor:
    """`exp(logits) / sum(exp(logits))` over the last axis."""
    if not short_rows(logits):
        return functional.softmax(logits, -1)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def entropy(probs: Tensor) -> Tensor:
    """`-sum p log p` over the last axis, in nats."""
    # The first clamp keeps the logarithm of zero finite. The second is for probabilities that round to just above one.
    logarithms = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    return (logarithms * probs).sum(-1).neg().clamp(min=0.0)


def short_rows(logits: Tensor) -> bool:
    """Whether rows are shorter than a vector register; torch's softmax is four to six times slower there."""
    return logits.device.type == "cpu" and logits.shape[-1] < _REGISTER_SIZE
