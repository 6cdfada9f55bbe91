"""Likelihoods in which every example has a weight: `log p(y)` times the weight of the example.

A weight of two is the same as two equal examples, and a weight of zero as none. Targets carry their weights with them,
so every engine and method that knows the plain likelihood trains with them. `plain` gives the likelihood back.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.likelihoods.categorical import Categorical
from bayesify.likelihoods.gaussian import Gaussian
from bayesify.likelihoods.log_normal import LogNormal


class WeightedCategorical(Categorical):
    """Classes with a weight for each example; a target is its label minus the number of classes times a weight's place.

    Args:
        classes: number of classes.
        weights: of the examples, `[n]`.
        class_weights: of the classes, which multiply those of the examples.

    """

    table: Tensor
    places: Tensor

    def __init__(self, classes: int, weights: Tensor, class_weights: Any = None) -> None:
        # Targets are negative numbers too, so the label that says that there is none lies below all of them.
        super().__init__(class_weights=class_weights, classes=classes, ignore_index=-(1 << 62))
        self.count = classes
        values, places = weights.double().unique(return_inverse=True)
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("table", values.to(torch.get_default_dtype()), persistent=False)

    def packed(self, labels: Tensor) -> Tensor:
        """The labels `[n]` of the examples with their weights."""
        return labels.long() - self.count * self.places

    def prepare(self, targets: Any) -> Tensor:
        return torch.as_tensor(targets).long()

    def width(self, targets: Tensor) -> int:
        return self.count

    def compared(self, targets: Tensor) -> Tensor:
        """The labels without the weights."""
        return targets % self.count

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        super().check_outputs(outputs, self.compared(targets))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        plain = super().log_prob(outputs, self.compared(targets), keys)
        return plain * self._own_weights(targets).to(plain.dtype)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        return super().log_density(outputs, self.compared(targets), keys)

    def weights_of(self, targets: Tensor) -> Tensor | None:
        of_classes, own = super().weights_of(self.compared(targets)), self._own_weights(targets)
        return own if of_classes is None else of_classes.to(own) * own

    def _own_weights(self, targets: Tensor) -> Tensor:
        return self.table[-torch.div(targets, self.count, rounding_mode="floor")]

    def plain(self) -> Categorical:
        """The likelihood without the weights of the examples."""
        return Categorical(class_weights=self.class_weights, classes=self.classes)


class WeightedGaussian(Gaussian):
    """Numbers with a weight for each example; targets are `[n, targets + 1]`, the weight in the last column.

    Args:
        single: whether there is one target per example, `[n]` before its weight was added.
        settings: those of `Gaussian`.

    """

    without: ClassVar[type[Gaussian]] = Gaussian

    def __init__(self, *, single: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.single = single
        self.own_settings = settings

    @staticmethod
    def packed(targets: Tensor, weights: Tensor) -> Tensor:
        """Targets `[n]` or `[n, targets]` of the examples with their weights `[n]`."""
        return torch.cat((targets.reshape(len(targets), -1), weights.reshape(-1, 1).to(targets.dtype)), 1)

    def width(self, targets: Tensor) -> int:
        return super().width(self._targets(targets))

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        super().check_outputs(outputs, self._targets(targets))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        plain = super().log_prob(outputs, self._targets(targets), keys)
        return plain * targets[:, -1].to(plain.dtype)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        return super().log_prob(outputs, self._targets(targets), keys)

    def plain(self) -> Gaussian:
        """The likelihood without the weights of the examples, with the noise that was learned."""
        likelihood = self.without(**self.own_settings)
        likelihood.load_state_dict(self.state_dict())
        return likelihood

    def _targets(self, targets: Tensor) -> Tensor:
        return targets[:, 0] if self.single else targets[:, :-1]


class WeightedLogNormal(WeightedGaussian, LogNormal):
    """As `WeightedGaussian`, for numbers whose logarithm has normal noise."""

    without = LogNormal

    def prepare(self, targets: Any) -> Tensor:
        # A weight may be zero.
        LogNormal.prepare(self, self._targets(Gaussian.prepare(self, targets)))
        return Gaussian.prepare(self, targets)

    def transformed(self, targets: Tensor) -> Tensor:
        return torch.cat((targets[:, :-1].log(), targets[:, -1:]), 1)
