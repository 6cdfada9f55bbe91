"""The contract of every likelihood: `log p(y | outputs)`, one number per draw and example.

Outputs carry a draws axis in front, `[draws, batch, ...]`; a target's own dimensions (pixels, tokens) are summed, so
that `log_prob` is `[draws, batch]` and a mean over the batch is a mean over examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from torch import Tensor, nn


class Likelihood(nn.Module, ABC):
    """The contract: validate targets, check a network against them, and give `log p(y | outputs)`."""

    kind: ClassVar[Literal["classification", "regression"]]
    name: ClassVar[str]
    noisy: ClassVar[bool] = False  # whether `log_prob` takes noise of its own, by keys

    @abstractmethod
    def width(self, targets: Tensor) -> int:
        """How many outputs the network must have for these (prepared) targets."""

    @abstractmethod
    def prepare(self, targets: Any) -> Tensor:
        """Targets as this likelihood reads them (int64 labels, floating numbers), or a ValueError."""

    @abstractmethod
    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise a ValueError unless the network's own outputs `[batch, ...]` fit the prepared targets."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """What training maximises: `[draws, batch]` from outputs `[draws, batch, ...]` and targets."""

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """What scores use: `log p(y)` itself, without class weights or bounds, `[draws, batch]`."""
        return self.log_prob(outputs, targets, keys)

    def spec(self) -> dict[str, Any]:
        """Everything that the constructor needs, as plain JSON; `from_spec` is the way back."""
        return {"name": self.name, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        return {}

    def __repr__(self) -> str:
        given = (f"{key}={value!r}" for key, value in self._settings().items() if value is not None)
        return f"{type(self).__name__}({', '.join(given)})"
