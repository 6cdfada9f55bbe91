"""All variables of a variational posterior as one vector: the weights, then the logarithms of the prior's scales.

    [ R random weights | P - R other weights | H random log scales | L learned log scales ]

The family is over the random variables, `z = [R | H]`. The others are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Variables:
    """How many variables of each kind there are, and where they stand in a vector."""

    weights: int
    random_weights: int
    random_scales: int
    learned_scales: int

    @property
    def random(self) -> int:
        """How many random variables there are, R + H."""
        return self.random_weights + self.random_scales

    def pick_random(self, vector: Tensor) -> Tensor:
        """The random variables: `[..., P + H + L]` -> `[..., R + H]`."""
        if not self.random_scales:
            return vector[..., : self.random_weights]
        scales = vector[..., self.weights : self.weights + self.random_scales]
        return torch.cat((vector[..., : self.random_weights], scales), -1)

    def pick_log_scales(self, vector: Tensor) -> Tensor | None:
        """The log scales `[..., H + L]`, where there are any."""
        return vector[..., self.weights :] if self.random_scales + self.learned_scales else None

    def whole(self, z: Tensor, mean: Tensor) -> Tensor:
        """Insert the other variables into draws of the random ones: `[draws, R + H]` -> `[draws, P + H + L]`."""
        fixed = (mean[self.random_weights : self.weights], mean[self.weights + self.random_scales :])
        others, learned = (columns.expand(z.shape[0], -1) for columns in fixed)
        blocks = (z[:, : self.random_weights], others, z[:, self.random_weights :], learned)
        present = [block for block in blocks if block.shape[1]]
        return torch.cat(present, 1) if len(present) > 1 else present[0]
