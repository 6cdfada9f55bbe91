"""Distributions over classes: one of several, or yes and no.

`Categorical` is `p(y) = softmax(outputs)_y`, `Bernoulli` is `p(1) = sigmoid(output)`; both hand out class probabilities
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

_REGISTER = 16


class Classification(Likelihood):
    """A distribution over classes for each example (or each of its positions); the class axis is last."""

    kind = "classification"

    @abstractmethod
    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """Logarithms of the class probabilities of each draw, `[draws, batch, *dims, classes]`."""

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """Class probabilities of each draw, `[draws, batch, *dims, classes]`."""
        return self.log_probs(outputs, keys).exp()

    def totals(self, outputs: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Sums over draws of the probabilities `[batch, *dims, classes]` and of their entropies `[batch, *dims]`."""
        probs = self.probs(outputs, keys)
        return probs.sum(0), entropy(probs).sum(0)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        log_probs, labels = aligned(self.log_probs(outputs, keys), targets, trailing=1)
        chosen = log_probs.gather(-1, labels.long().expand(log_probs.shape[:-1]).unsqueeze(-1))
        return chosen.squeeze(-1).sum(-1)


class Labels(Classification):
    """What `Categorical` and `GaussianLogits` share: integer labels, and outputs with a class axis."""

    parameters_per_class: ClassVar[int] = 1

    def __init__(self, classes: int | None, class_dim: int) -> None:
        super().__init__()
        if classes is not None and classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if class_dim == 0:
            raise ValueError("class_dim must not be 0, which is the batch; the classes usually lie on 1 or -1")
        self.classes, self.class_dim = classes, class_dim

    def width(self, targets: Tensor) -> int:
        return self.parameters_per_class * (self.classes or int(targets.max()) + 1)

    def prepare(self, targets: Any) -> Tensor:
        labels = target_tensor(targets)
        if labels.is_floating_point() or labels.is_complex():
            raise ValueError(f"{type(self).__name__} needs integer labels from 0, got {labels.dtype}; convert them")
        labels = labels.long()
        if int(labels.min()) < 0:
            raise ValueError(f"labels must be integers from 0, got {int(labels.min())}")
        if self.classes is not None and int(labels.max()) >= self.classes:
            raise ValueError(f"labels must be below classes={self.classes}, got {int(labels.max())}")
        return labels

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        check_rows(outputs, targets)
        if not -outputs.ndim < self.class_dim < outputs.ndim:
            shape = shape_text(outputs.shape[1:])
            raise ValueError(
                f"{type(self).__name__} looks for classes on axis {self.class_dim}, the network gives {shape}"
            )
        given, needed = outputs.shape[self.class_dim], self.width(targets)
        exact = self.classes is not None
        if given < needed or (exact and given != needed) or given % self.parameters_per_class:
            problem = f"needs {needed} outputs for these targets, the network gives {given}"
            raise ValueError(f"{type(self).__name__} {problem}")
        dims = outputs.movedim(self.class_dim, -1).shape[1:-1]
        if without_ones(dims) != without_ones(targets.shape[1:]):
            problem = f"needs a label for each of {shape_text(dims)}, the targets are {shape_text(targets.shape[1:])}"
            raise ValueError(f"{type(self).__name__} {problem}")

    def _class_axis_last(self, outputs: Tensor) -> Tensor:
        return real(outputs).movedim(self.class_dim + 1 if self.class_dim > 0 else self.class_dim, -1)


class Categorical(Labels):
    """One of several classes: `p(y) = softmax(outputs)_y`.

    `class_dim` is the class axis of the network's own outputs (1, or -1 for `[batch, tokens, classes]`).
    `class_weights` multiply an example's log-likelihood by the weight of its class, which makes it a
    pseudo-likelihood; predictions and scores (`probs`, `log_density`) stay those of the plain softmax.
    `classes` fixes how many there are; otherwise the largest label decides, and more outputs are welcome.
    """

    name = "categorical"
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
                raise ValueError(f"class_weights must hold classes={classes} numbers, got {len(weights)}")
            classes = len(weights)
        super().__init__(classes, class_dim)
        self.register_buffer("class_weights", weights, persistent=False)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        return functional.log_softmax(self._class_axis_last(outputs), -1)

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        return softmax(self._class_axis_last(outputs))

    def totals(self, outputs: Tensor, keys: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logits = self._class_axis_last(outputs)
        if not _short_rows(logits) or logits.requires_grad:
            return super().totals(outputs, keys)
        # Classes before inputs: every operation then runs along inputs, in place, because new memory costs more than
        # arithmetic. With d the distances below the largest logit, H = log sum exp(-d) + sum p d, where nothing is
        # subtracted.
        below = logits.movedim(-1, 1).clone(memory_format=torch.contiguous_format)
        below.sub_(below.amax(1, keepdim=True)).clamp_(min=torch.finfo(below.dtype).min)
        probs = torch.exp(below)
        whole = probs.sum(1, keepdim=True)
        probs.div_(whole)
        entropies = whole.log().squeeze(1) - below.mul_(probs).sum(1)
        return probs.sum(0).movedim(0, -1).contiguous(), entropies.sum(0)

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        logits, labels = aligned(self._class_axis_last(outputs), targets, trailing=1)
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        flat = labels.expand(logits.shape[:-1]).reshape(-1)
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat, weight=weights, reduction="none")
        return -loss.view(logits.shape[:-1]).sum(-1)

    def _settings(self) -> dict[str, Any]:
        weights = None if self.class_weights is None else self.class_weights.tolist()
        return {"class_weights": weights, "class_dim": self.class_dim, "classes": self.classes}


class Bernoulli(Classification):
    """Yes or no, once or for each of several questions: `p(1) = sigmoid(output)`; two classes come out."""

    name = "bernoulli"

    def width(self, targets: Tensor) -> int:
        return targets.shape[1] if targets.ndim > 1 else 1

    def prepare(self, targets: Any) -> Tensor:
        answers = target_tensor(targets)
        if answers.is_complex() or not bool(((answers == 0) | (answers == 1)).all()):
            raise ValueError(f"Bernoulli needs targets of 0 and 1, got {_first_other_than_zero_and_one(answers)}")
        return answers.long()

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        check_rows(outputs, targets)
        check_dims(self, outputs, targets, 1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        logits = one_number(real(outputs))
        return functional.logsigmoid(torch.stack((-logits, logits), -1))

    def probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        logits = one_number(real(outputs))
        return torch.sigmoid(torch.stack((-logits, logits), -1))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        logits, answers = aligned(real(outputs), targets)
        return functional.logsigmoid(torch.where(answers == 1, logits, -logits)).sum(-1)


def softmax(logits: Tensor) -> Tensor:
    """`exp(logits) / sum(exp(logits))` over the last axis."""
    if not _short_rows(logits):
        return functional.softmax(logits, -1)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def entropy(probs: Tensor) -> Tensor:
    """`-sum p log p` over the last axis, in nats."""
    # The smallest normal number keeps the logarithm of zero finite, and times zero it is zero. A probability that
    # rounds to a hair above one would make an entropy negative.
    logarithms = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    return (logarithms * probs).sum(-1).neg().clamp(min=0.0)


def _short_rows(logits: Tensor) -> bool:
    """Whether rows are shorter than a vector register, where torch's own softmax takes four to six times as long."""
    return logits.device.type == "cpu" and logits.shape[-1] < _REGISTER


def _first_other_than_zero_and_one(answers: Tensor) -> str:
    return str(answers[(answers != 0) & (answers != 1)][0].item())
