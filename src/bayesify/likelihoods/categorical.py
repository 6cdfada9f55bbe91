"""One of several classes, `p(y) = softmax(outputs)_y`, for labels or probabilities of the classes as targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bayesify.likelihoods.classification import short_rows, softmax
from bayesify.likelihoods.labels import Labels, soft_sum
from bayesify.likelihoods.shapes import aligned

BALANCED = "balanced"


class Categorical(Labels):
    """One of several classes: `p(y) = softmax(outputs)_y`.

    Targets are labels from 0, one per example or one per position (`[batch, tokens]`, `[batch, height, width]`), or
    probabilities of the classes (soft labels), whose log-likelihood is `sum over classes of target * log p`.

    Args:
        class_weights: one number per class, or `"balanced"`: `n / (classes * examples of the class)`, from the data of
            `fit`. They multiply the log-likelihood of the class's examples in training, which makes it a
            pseudo-likelihood. Predictions and scores (`probs`, `log_density`) do not use them.
        class_dim: the class axis of the network's outputs: 1 for `[batch, classes, ...]`, -1 for
            `[batch, ..., classes]`, or None for the one that leaves the shape of the labels.
        classes: the number of outputs. Unless given, there must be at least one output per label up to the largest.
        ignore_index: the label of positions that have none (padding, void pixels); they do not count.

    Examples:
        >>> likelihood = bf.likelihoods.Categorical()
        >>> likelihood.log_prob(torch.zeros(1, 3, 4), torch.tensor([0, 3, -100]))
        tensor([[-1.3863, -1.3863, -0.0000]])

    """

    name = "categorical"
    text_options = ("classes",)
    from_data = ("classes",)
    soft = True
    class_weights: Tensor | None

    def __init__(
        self,
        class_weights: Sequence[float] | Tensor | str | None = None,
        class_dim: int | None = None,
        classes: int | None = None,
        ignore_index: int = -100,
    ) -> None:
        if isinstance(class_weights, str) and class_weights != BALANCED:
            raise ValueError(f"class_weights must be numbers or {BALANCED!r}, got {class_weights!r}")
        given = None if class_weights is None or isinstance(class_weights, str) else class_weights
        weights = None if given is None else torch.as_tensor(given, dtype=torch.get_default_dtype())
        if weights is not None:
            if weights.ndim != 1 or not bool((weights >= 0).all()) or not bool(torch.isfinite(weights).all()):
                raise ValueError(f"class_weights must be one non-negative number per class, got {weights.tolist()}")
            if classes is not None and classes != len(weights):
                raise ValueError(f"class_weights must be classes={classes} numbers, got {len(weights)}")
            classes = len(weights)
        super().__init__(classes, class_dim, ignore_index)
        self.balanced = isinstance(class_weights, str)
        self.register_buffer("class_weights", weights, persistent=False)

    @classmethod
    def from_words(cls, words: list[Any]) -> dict[str, Any]:
        """`balanced`, or the number of classes, or both.

        Args:
            words: the options of a text form.

        Returns:
            The constructor's arguments.

        """
        weights = {"class_weights": BALANCED} if BALANCED in words else {}
        return weights | super().from_words([word for word in words if word != BALANCED])

    @classmethod
    def to_words(cls, spec: dict[str, Any]) -> list[str]:
        """`balanced`, where the class weights are.

        Args:
            spec: a description as plain JSON.

        Returns:
            The options of a text form.

        """
        return [BALANCED] if spec.get("class_weights") == BALANCED else []

    @property
    def remark(self) -> str | None:
        """What `summary()` says about class weights."""
        weighted = self.balanced or self.class_weights is not None
        return "class weights make the likelihood a pseudo-likelihood" if weighted else None

    @property
    def adapts(self) -> bool:
        """Whether the class weights come from the training data."""
        return self.balanced

    def adapt_to(self, targets: Tensor) -> None:
        """Balance the class weights: every class then has the same total weight, and the mean weight is 1.

        Args:
            targets: prepared targets of the training data.

        """
        if targets.is_floating_point():
            counts = targets.reshape(-1, targets.shape[-1]).double().sum(0)
        else:
            known = targets[targets != self.ignore_index]
            size = self.classes or max(int(targets.max()), 0) + 1
            counts = torch.bincount(known.reshape(-1), minlength=size).double()
        present = counts > 0
        weights = torch.where(present, counts.sum() / (present.sum() * counts.clamp(min=1e-12)), 0.0)
        self.class_weights = weights.to(torch.get_default_dtype())

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
        if not short_rows(logits) or logits.requires_grad:
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
        weights = self._weights(outputs)
        last = self._class_axis_last(outputs, targets)
        if targets.is_floating_point():
            return soft_sum(functional.log_softmax(last, -1), targets if weights is None else targets * weights)
        logits, labels = aligned(last, targets, trailing=1)
        flat = labels.expand(logits.shape[:-1]).reshape(-1)
        loss = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]),
            flat,
            weight=weights if weights is None else weights.to(logits.dtype),
            ignore_index=self.ignore_index,
            reduction="none",
        )
        return -loss.view(logits.shape[:-1]).sum(-1)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability of the labels, without class weights, summed over positions.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        log_probs = functional.log_softmax(self._class_axis_last(outputs, targets), -1)
        if targets.is_floating_point():
            return soft_sum(log_probs, targets)
        log_probs, labels = aligned(log_probs, targets, trailing=1)
        chosen = log_probs.gather(-1, labels.clamp(min=0).expand(log_probs.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return torch.where(labels == self.ignore_index, 0.0, chosen).sum(-1)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON; `ignore_index` where it is not the default."""
        weights: Any = None if self.class_weights is None else self.class_weights.tolist()
        settings = {"class_weights": BALANCED if self.balanced else weights, "class_dim": self.class_dim}
        other = {} if self.ignore_index == -100 else {"ignore_index": self.ignore_index}
        return settings | {"classes": self.classes} | other

    def weights_of(self, targets: Tensor) -> Tensor | None:
        """The weight of each position in training: its class weight, and 0 where there is no label.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            Weights `[batch, ...]`; None where all are 1.

        """
        weights = self._weights(targets)
        if targets.is_floating_point():
            return None if weights is None else (targets * weights.to(targets)).sum(-1)
        there = self.counted(targets)
        if weights is None:
            return None if there is None else there.to(torch.get_default_dtype())
        each = weights.to(targets.device)[targets.clamp(min=0)]
        return each if there is None else torch.where(there, each, 0.0)

    def _weights(self, like: Tensor) -> Tensor | None:
        if self.balanced and self.class_weights is None:
            raise ValueError(
                "balanced class weights come from the training data: call fit, or likelihood.adapt_to(targets) first"
            )
        return None if self.class_weights is None else self.class_weights.to(like.device)
