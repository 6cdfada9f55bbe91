"""What a variational posterior is about, as one vector: a network's weights, then the logarithms of its prior's scales.

    [ R random weights | P - R other weights | H random log scales | L learned log scales ]

The family is over what is random, `z = [R | H]`; the rest are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Unknowns:
    """How many of each there are, and the parts of vectors made of them."""

    weights: int
    random_weights: int
    random_scales: int
    learned_scales: int

    @property
    def random(self) -> int:
        """How many numbers the family is over, R + H."""
        return self.random_weights + self.random_scales

    def pick_random(self, vector: Tensor) -> Tensor:
        """What is random: `[..., P + H + L]` -> `[..., R + H]`."""
        if not self.random_scales:
            return vector[..., : self.random_weights]
        scales = vector[..., self.weights : self.weights + self.random_scales]
        return torch.cat((vector[..., : self.random_weights], scales), -1)

    def pick_log_scales(self, vector: Tensor) -> Tensor | None:
        """The log scales `[..., H + L]`, where there are any."""
        return vector[..., self.weights :] if self.random_scales + self.learned_scales else None

    def whole(self, z: Tensor, mean: Tensor) -> Tensor:
        """Draws of what is random, `[draws, R + H]`, with the rest where it belongs: `[draws, P + H + L]`."""
        fixed = (mean[self.random_weights : self.weights], mean[self.weights + self.random_scales :])
        others, learned = (part.expand(z.shape[0], -1) for part in fixed)
        parts = (z[:, : self.random_weights], others, z[:, self.random_weights :], learned)
        present = [part for part in parts if part.shape[1]]
        return torch.cat(present, 1) if len(present) > 1 else present[0]
