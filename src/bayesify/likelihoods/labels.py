"""Labels from 0, for an example or each of its positions (tokens, pixels), and outputs with a class axis.

A label of `ignore_index` is no label: its position adds nothing to the log-likelihood. An example is a row of the
targets, however many of its labels are ignored, so the loss stays the mean over rows and the KL is divided by their
number: N times the loss is exactly minus the log-likelihood of the labels that are there, plus the KL.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.errors import counted
from bayesify.likelihoods.classification import Classification
from bayesify.likelihoods.shapes import check_rows, real, shape_text, target_tensor, without_ones

# How far probabilities may be from a sum of 1.
_ROUNDING = 1e-3


class Labels(Classification):
    """The common part of `Categorical` and `GaussianLogits`: integer labels, and outputs with a class axis."""

    parameters_per_class: ClassVar[int] = 1
    # Whether targets may be probabilities of the classes.
    soft: ClassVar[bool] = False

    def __init__(self, classes: int | None, class_dim: int | None, ignore_index: int = -100) -> None:
        super().__init__()
        if classes is not None and classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if class_dim is not None and (isinstance(class_dim, bool) or not isinstance(class_dim, int)):
            raise TypeError(f"class_dim must be an axis such as 1 or -1, or None, got {class_dim!r}")
        if class_dim == 0:
            raise ValueError("class_dim must not be 0, the batch axis: use 1 or -1")
        if ignore_index >= 0:
            raise ValueError(f"ignore_index must be below 0, where there are no classes, got {ignore_index}")
        self.classes, self.class_dim, self.ignore_index = classes, class_dim, ignore_index

    def width(self, targets: Tensor) -> int:
        """The number of outputs: `classes`, or else the largest label plus one, times the parameters per class.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the class axis.

        """
        needed = targets.shape[-1] if targets.is_floating_point() else max(int(targets.max()), 0) + 1
        return self.parameters_per_class * (self.classes or needed)

    def prepare(self, targets: Any) -> Tensor:
        """Integer labels as an int64 tensor, or probabilities of the classes with the class axis last.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Labels `[batch, ...]`, or probabilities `[batch, ..., classes]`.

        Raises:
            ValueError: if labels are not integers from 0 (or `ignore_index`), or not below `classes`.

        """
        labels = target_tensor(targets)
        if labels.is_floating_point() or labels.is_complex():
            return self._probabilities(labels)
        labels = labels.long()
        known = labels[labels != self.ignore_index]
        if known.numel() == 0:
            return labels
        if int(known.min()) < 0:
            raise ValueError(
                f"labels must be integers from 0, got {int(known.min())}: {self.ignore_index} says that there is none"
            )
        if self.classes is not None and int(known.max()) >= self.classes:
            raise ValueError(f"labels must be below classes={self.classes}, got {int(known.max())}")
        return labels

    def compared(self, targets: Tensor) -> Tensor:
        """The labels; of probabilities, the most probable ones.

        Args:
            targets: prepared targets.

        Returns:
            Labels `[batch, ...]`.

        """
        return targets.argmax(-1) if targets.is_floating_point() else targets

    def counted(self, targets: Tensor) -> Tensor | None:
        """Where there is a label; None where there is one everywhere.

        Args:
            targets: prepared targets.

        Returns:
            A mask, shaped like `compared(targets)`.

        """
        if targets.is_floating_point():
            return None
        there = targets != self.ignore_index
        return None if bool(there.all()) else there

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs have a class axis of the right size and a label for each position.

        Where `class_dim` is None and outputs have more than two axes, the one that fits is kept in it.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit, or two axes fit and `class_dim` is None.

        """
        check_rows(outputs, targets)
        axis = self.class_axis(outputs, targets)
        if not -outputs.ndim < axis < outputs.ndim:
            shape = shape_text(outputs.shape[1:])
            raise ValueError(f"{type(self).__name__} needs classes on axis {axis}, got outputs {shape}: set class_dim")
        size, needed = outputs.shape[axis], self.width(targets)
        exact = self.classes is not None or targets.is_floating_point()
        if size < needed or (exact and size != needed) or size % self.parameters_per_class:
            problem = f"needs {counted(needed, 'output')} for these targets, the network gives {size}"
            raise ValueError(f"{type(self).__name__} {problem}")
        dims, labelled = outputs.movedim(axis, -1).shape[1:-1], _positions(targets)
        if without_ones(dims) != without_ones(labelled):
            problem = f"needs a label for each of {shape_text(dims)}, the targets are {shape_text(labelled)}"
            raise ValueError(f"{type(self).__name__} {problem}")
        if outputs.ndim > 2:
            self.class_dim = axis

    def class_axis(self, outputs: Tensor, targets: Tensor) -> int:
        """The class axis of outputs without a draws axis: `class_dim`, or the one that leaves the targets' shape.

        Args:
            outputs: of the network, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Returns:
            1, -1 or `class_dim`.

        Raises:
            ValueError: if `class_dim` is None and both axes fit.

        """
        if self.class_dim is not None or outputs.ndim <= 2:
            return 1 if self.class_dim is None else self.class_dim
        wanted = without_ones(_positions(targets))
        fitting = [axis for axis in (1, -1) if without_ones(outputs.movedim(axis, -1).shape[1:-1]) == wanted]
        if len(fitting) == 2:
            shape = shape_text(outputs.shape[1:])
            raise ValueError(
                f"the classes may be on axis 1 or -1 of outputs {shape}: say which with "
                f"{type(self).__name__}(class_dim=...)"
            )
        return fitting[0] if fitting else 1

    def _class_axis_last(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        axis = self.class_dim
        if axis is None and outputs.ndim > 3:
            if targets is None:
                shape = shape_text(outputs.shape[2:])
                raise ValueError(
                    f"the class axis of outputs {shape} is not known before training: say which with "
                    f"{type(self).__name__}(class_dim=...)"
                )
            axis = self.class_axis(outputs[0], targets)
        if axis is None:
            return real(outputs)
        return real(outputs).movedim(axis + 1 if axis > 0 else axis, -1)

    def _probabilities(self, targets: Tensor) -> Tensor:
        """Soft labels: floating numbers that sum to 1 over the last axis, or over axis 1, which then moves there."""
        name = type(self).__name__
        if not self.soft or targets.is_complex() or targets.ndim < 2:
            raise ValueError(f"{name} needs integer labels from 0, got {targets.dtype}: convert them")
        targets = real(targets)
        for axis in (-1, 1):
            total = targets.sum(axis)
            if bool((targets >= 0).all()) and bool(((total - 1).abs() <= _ROUNDING).all()):
                if self.classes not in (None, targets.shape[axis]):
                    raise ValueError(f"soft labels must have classes={self.classes} numbers, got {targets.shape[axis]}")
                return targets.movedim(axis, -1)
        raise ValueError(
            f"{name} needs integer labels from 0, or probabilities that sum to 1 over the classes, got {targets.dtype} "
            f"{list(targets.shape)}: convert them"
        )


def _positions(targets: Tensor) -> list[int]:
    """The shape of an example's labels."""
    return list(targets.shape[1:-1] if targets.is_floating_point() else targets.shape[1:])


def soft_sum(log_probs: Tensor, targets: Tensor) -> Tensor:
    """`sum over classes of target * log p`, and over positions, `[draws, batch]`, for soft labels `[batch, ..., C]`."""
    draws, batch, *dims = log_probs.shape
    if targets.shape[0] != batch or targets.numel() != batch * math.prod(dims):
        raise ValueError(f"targets {list(targets.shape)} do not fit outputs {list(log_probs.shape)} (draws come first)")
    weights = targets.reshape(batch, *dims).to(log_probs.dtype)
    # A class of probability 0 adds nothing, even where its log probability is infinite.
    terms = torch.where(weights > 0, weights * log_probs, 0.0)
    return terms.reshape(draws, batch, -1).sum(-1)
