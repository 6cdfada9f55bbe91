"""Distributions over classes: one of several, or two.

`Categorical` is `p(y) = softmax(outputs)_y`, `Bernoulli` is `p(1) = sigmoid(output)`; both return class probabilities
with the class axis last.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.shapes import (
    aligned,
    check_dims,
    check_rows,
    one_number,
    real,
    shape_text,
    target_tensor,
    without_ones,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# Numbers in a vector register of the CPU.
_REGISTER_SIZE = 16


class Classification(Likelihood):
    """The base class of likelihoods over classes, for each example or each of its positions; the class axis is last.

    Example:
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


class Labels(Classification):
    """The common part of `Categorical` and `GaussianLogits`: integer labels, and outputs with a class axis."""

    parameters_per_class: ClassVar[int] = 1

    def __init__(self, classes: int | None, class_dim: int) -> None:
        super().__init__()
        if classes is not None and classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if class_dim == 0:
            raise ValueError("class_dim must not be 0, the batch axis: use 1 or -1")
        self.classes, self.class_dim = classes, class_dim

    def width(self, targets: Tensor) -> int:
        """The number of outputs: `classes`, or else the largest label plus one, times the parameters per class.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the class axis.

        """
        return self.parameters_per_class * (self.classes or int(targets.max()) + 1)

    def prepare(self, targets: Any) -> Tensor:
        """Integer labels as an int64 tensor.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Labels `[batch, ...]`.

        Raises:
            ValueError: if they are not integers from 0, or not below `classes`.

        """
        labels = target_tensor(targets)
        if labels.is_floating_point() or labels.is_complex():
            raise ValueError(f"{type(self).__name__} needs integer labels from 0, got {labels.dtype}: convert them")
        labels = labels.long()
        if int(labels.min()) < 0:
            raise ValueError(f"labels must be integers from 0, got {int(labels.min())}")
        if self.classes is not None and int(labels.max()) >= self.classes:
            raise ValueError(f"labels must be below classes={self.classes}, got {int(labels.max())}")
        return labels

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs have a class axis of the right size and a label for each position.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit.

        """
        check_rows(outputs, targets)
        if not -outputs.ndim < self.class_dim < outputs.ndim:
            shape = shape_text(outputs.shape[1:])
            raise ValueError(
                f"{type(self).__name__} needs classes on axis {self.class_dim}, got outputs {shape}: set class_dim"
            )
        size, needed = outputs.shape[self.class_dim], self.width(targets)
        exact = self.classes is not None
        if size < needed or (exact and size != needed) or size % self.parameters_per_class:
            problem = f"needs {needed} outputs for these targets, the network gives {size}"
            raise ValueError(f"{type(self).__name__} {problem}")
        dims = outputs.movedim(self.class_dim, -1).shape[1:-1]
        if without_ones(dims) != without_ones(targets.shape[1:]):
            problem = f"needs a label for each of {shape_text(dims)}, the targets are {shape_text(targets.shape[1:])}"
            raise ValueError(f"{type(self).__name__} {problem}")

    def _class_axis_last(self, outputs: Tensor) -> Tensor:
        return real(outputs).movedim(self.class_dim + 1 if self.class_dim > 0 else self.class_dim, -1)


class Categorical(Labels):
    """One of several classes: `p(y) = softmax(outputs)_y`.

    Args:
        class_weights: one number per class. They multiply the log-likelihood of the class's examples in training, which
            makes it a pseudo-likelihood. Predictions and scores (`probs`, `log_density`) do not use them.
        class_dim: the class axis of the network's outputs: 1, or -1 for `[batch, tokens, classes]`.
        classes: the number of outputs. Unless given, there must be at least one output per label up to the largest.

    Example:
        >>> likelihood = bf.likelihoods.Categorical()
        >>> likelihood.log_prob(torch.zeros(1, 2, 4), torch.tensor([0, 3]))
        tensor([[-1.3863, -1.3863]])

    """

    name = "categorical"
    text_options = ("classes",)
    from_data = ("classes",)
    class_weights: Tensor | None

    def __init__(
        self,
        class_weights: Sequence[float] | Tensor | None = None,
        class_dim: int = 1,
        classes: int | None = None,
    ) -> None:
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.get_default_dtype())
        if weights is not None:
            if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(torch.isfinite(weights).all()):
                raise ValueError(f"class_weights must be one non-negative number per class, got {weights.tolist()}")
            if classes is not None and classes != len(weights):
                raise ValueError(f"class_weights must be classes={classes} numbers, got {len(weights)}")
            classes = len(weights)
        super().__init__(classes, class_dim)
        self.register_buffer("class_weights", weights, persistent=False)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """`log softmax(outputs)`.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Logarithms `[draws, batch, *dims, classes]`.

        """
        return functional.log_softmax(self._class_axis_last(outputs), -1)

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """`softmax(outputs)`.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Probabilities `[draws, batch, *dims, classes]`.

        """
        return softmax(self._class_axis_last(outputs))

    def totals(self, outputs: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sums over draws of the class probabilities and of their entropies.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Two tensors, `[batch, *dims, classes]` and `[batch, *dims]`.

        """
        logits = self._class_axis_last(outputs)
        if not _short_rows(logits) or logits.requires_grad:
            return super().totals(outputs, keys)
        # Classes come before inputs: every operation then runs along inputs, in place, because new memory costs more
        # than arithmetic. With d the distances below the largest logit, H = log sum exp(-d) + sum p d: no cancellation.
        below = logits.movedim(-1, 1).clone(memory_format=torch.contiguous_format)
        below.sub_(below.amax(1, keepdim=True)).clamp_(min=torch.finfo(below.dtype).min)
        probs = torch.exp(below)
        total = probs.sum(1, keepdim=True)
        probs.div_(total)
        entropies = total.log().squeeze(1) - below.mul_(probs).sum(1)
        return probs.sum(0).movedim(0, -1).contiguous(), entropies.sum(0)

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability of the labels, times their class weights, summed over positions.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        logits, labels = aligned(self._class_axis_last(outputs), targets, trailing=1)
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        flat = labels.expand(logits.shape[:-1]).reshape(-1)
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat, weight=weights, reduction="none")
        return -loss.view(logits.shape[:-1]).sum(-1)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON."""
        weights = None if self.class_weights is None else self.class_weights.tolist()
        return {"class_weights": weights, "class_dim": self.class_dim, "classes": self.classes}


class Bernoulli(Classification):
    """Two classes, 0 and 1, for one target or each of several: `p(1) = sigmoid(output)`.

    Example:
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
            raise ValueError(f"Bernoulli needs targets of 0 and 1, got {_first_other_than_zero_and_one(labels)}")
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


def softmax(logits: Tensor) -> Tensor:
    """`exp(logits) / sum(exp(logits))` over the last axis."""
    if not _short_rows(logits):
        return functional.softmax(logits, -1)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def entropy(probs: Tensor) -> Tensor:
    """`-sum p log p` over the last axis, in nats."""
    # The first clamp keeps the logarithm of zero finite. The second is for probabilities that round to just above one.
    logarithms = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    return (logarithms * probs).sum(-1).neg().clamp(min=0.0)


def _short_rows(logits: Tensor) -> bool:
    """Whether rows are shorter than a vector register; torch's softmax is four to six times slower there."""
    return logits.device.type == "cpu" and logits.shape[-1] < _REGISTER_SIZE


def _first_other_than_zero_and_one(labels: Tensor) -> str:
    return str(labels[(labels != 0) & (labels != 1)][0].item())
