"""Classes with an order (grades, stages, stars): one output, and cut points between neighbouring classes.

`p(y <= k) = sigmoid(cut_k - output)` (P. McCullagh, "Regression models for ordinal data", 1980). A larger output makes
higher classes more likely, and a wrong class next to the right one costs less than a distant one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesify.likelihoods.classification import Classification
from bayesify.likelihoods.shapes import aligned, check_dims, check_rows, one_number, real, target_tensor


class Ordinal(Classification):
    """One of several ordered classes, 0 to `classes - 1`: `p(y <= k) = sigmoid(cut_k - output)`.

    Args:
        classes: the number of classes, at least 2.
        cuts: the `classes - 1` cut points in increasing order; None learns them with the weights, from cuts that make
            all classes equally likely at an output of 0.

    Examples:
        >>> likelihood = bf.likelihoods.Ordinal(classes=3, cuts=[-1.0, 1.0])
        >>> likelihood.probs(torch.tensor([[[0.0], [3.0]]]))
        tensor([[[0.2689, 0.4621, 0.2689],
                 [0.0180, 0.1012, 0.8808]]])

    """

    name = "ordinal"
    text_options = ("classes",)
    from_data = ("classes",)
    first_cut: nn.Parameter | None
    raw_steps: nn.Parameter | None
    _fixed: Tensor | None

    def __init__(self, classes: int | None = None, cuts: Sequence[float] | None = None) -> None:
        super().__init__()
        if cuts is not None:
            given = [float(cut) for cut in cuts]
            if not given or given != sorted(set(given)) or not all(map(math.isfinite, given)):
                raise ValueError(f"cuts must be finite numbers that increase, got {given}")
            if classes not in (None, len(given) + 1):
                raise ValueError(f"cuts must be classes - 1 = {(classes or 0) - 1} numbers, got {len(given)}")
            classes = len(given) + 1
        elif classes is not None and classes < 2:
            raise ValueError(f"classes must be at least 2, got {classes}")
        self.classes, self.cuts = classes, None if cuts is None else [float(cut) for cut in cuts]
        self.register_buffer("_fixed", None if cuts is None else torch.tensor(self.cuts), persistent=False)
        learned = cuts is None and classes is not None
        begin = torch.logit(torch.arange(1, classes or 2) / (classes or 2))
        self.register_parameter("first_cut", nn.Parameter(begin[0].clone()) if learned else None)
        # A softplus of these is the distance to the next cut.
        steps = nn.Parameter(begin.diff().expm1().log()) if learned and len(begin) > 1 else None
        self.register_parameter("raw_steps", steps)

    def width(self, targets: Tensor) -> int:
        """The number of outputs: one per target.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the output layer.

        """
        return targets.shape[1] if targets.ndim > 1 else 1

    def prepare(self, targets: Any) -> Tensor:
        """Labels from 0 as an int64 tensor.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Labels `[batch, ...]`.

        Raises:
            ValueError: if they are not integers from 0, or not below `classes`.

        """
        labels = target_tensor(targets)
        if labels.is_complex() or not torch.equal(labels, labels.long().to(labels.dtype)):
            raise ValueError(f"Ordinal needs whole numbers from 0 as labels, got {labels.dtype}")
        labels = labels.long()
        if int(labels.min()) < 0:
            raise ValueError(f"labels must be integers from 0, got {int(labels.min())}")
        if self.classes is not None and int(labels.max()) >= self.classes:
            raise ValueError(f"labels must be below classes={self.classes}, got {int(labels.max())}")
        return labels

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless there is one output per target.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets `[batch, ...]`.

        Raises:
            ValueError: if the shapes do not fit, or the number of classes is not known.

        """
        self._all_cuts(outputs)
        check_rows(outputs, targets)
        check_dims(self, outputs, targets, 1)

    def log_probs(self, outputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """`log(sigmoid(cut_k - output) - sigmoid(cut_(k-1) - output))`.

        Args:
            outputs: `[draws, batch, ...]`.
            keys: not used.

        Returns:
            Logarithms `[draws, batch, *dims, classes]`.

        """
        return self._log_probs(one_number(real(outputs)))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log probability of the labels, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        outputs, labels = aligned(real(outputs), targets)
        log_probs = self._log_probs(outputs)
        return log_probs.gather(-1, labels.expand(outputs.shape).unsqueeze(-1)).squeeze(-1).sum(-1)

    def information_root(self, outputs: Tensor) -> Tensor:
        """The root of the Fisher information of the output, `sum over classes of (dp / doutput)^2 / p`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            A tensor shaped like the outputs.

        """
        outputs = real(outputs)
        below = torch.sigmoid(self._all_cuts(outputs) - outputs.unsqueeze(-1))
        slopes = functional.pad(below * (1 - below), (1, 1)).diff(dim=-1)
        tiny = torch.finfo(outputs.dtype).tiny
        return (slopes.square() / self._log_probs(outputs).exp().clamp(min=tiny)).sum(-1).sqrt()

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON."""
        return {"classes": self.classes} | ({} if self.cuts is None else {"cuts": self.cuts})

    def _log_probs(self, outputs: Tensor) -> Tensor:
        cuts = self._all_cuts(outputs)
        below, above = cuts - outputs.unsqueeze(-1), outputs.unsqueeze(-1) - cuts
        at_most, more = functional.logsigmoid(below), functional.logsigmoid(above)
        # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)): no difference of nearly equal numbers.
        between = at_most[..., 1:] + more[..., :-1] + torch.log(-torch.expm1(-cuts.diff()))
        return torch.cat((at_most[..., :1], between, more[..., -1:]), -1)

    def _all_cuts(self, like: Tensor) -> Tensor:
        """The cut points, `[classes - 1]`."""
        if self._fixed is not None:
            return self._fixed.to(like)
        if self.first_cut is None:
            raise ValueError("ordinal needs the number of classes: write ordinal:5 or Ordinal(classes=5)")
        first = self.first_cut.to(like.dtype).reshape(1)
        if self.raw_steps is None:
            return first
        return torch.cat((first, first + functional.softplus(self.raw_steps.to(like.dtype)).cumsum(0)))
