"""All variables of a variational posterior as one vector: the weights, then logarithms of scales and of the noise.

    [ R random weights | P - R other weights | H random log scales | L learned log scales | N log noise ]

The family is over the random variables, `z = [R | H | N]`. The others are parameters. N is one where the noise has a
prior, and zero otherwise.
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
    noises: int = 0

    @property
    def random(self) -> int:
        """How many random variables there are, R + H + N."""
        return self.random_weights + self.random_scales + self.noises

    @property
    def scales(self) -> slice:
        """Where the log scales stand, H + L of them."""
        return slice(self.weights, self.weights + self.random_scales + self.learned_scales)

    @property
    def random_places(self) -> Tensor:
        """Where the random variables stand in a vector of all, `[R + H + N]` integers."""
        scales = range(self.weights, self.weights + self.random_scales)
        noises = range(self.scales.stop, self.scales.stop + self.noises)
        return torch.tensor([*range(self.random_weights), *scales, *noises])

    def pick_random(self, vector: Tensor) -> Tensor:
        """The random variables: `[..., P + H + L + N]` -> `[..., R + H + N]`."""
        if not self.random_scales + self.noises:
            return vector[..., : self.random_weights]
        scales = vector[..., self.weights : self.weights + self.random_scales]
        return torch.cat((vector[..., : self.random_weights], scales, vector[..., self.scales.stop :]), -1)

    def pick_log_scales(self, vector: Tensor) -> Tensor | None:
        """The log scales `[..., H + L]`, where there are any."""
        return vector[..., self.scales] if self.random_scales + self.learned_scales else None

    def pick_log_noise(self, vector: Tensor) -> Tensor | None:
        """The log noise `[...]`, where it is a variable."""
        return vector[..., -1] if self.noises else None

    def whole(self, z: Tensor, mean: Tensor) -> Tensor:
        """Insert the others into draws of the random variables: `[draws, R + H + N]` -> `[draws, P + H + L + N]`."""
        random_scales = self.random_weights + self.random_scales
        fixed = (mean[self.random_weights : self.weights], mean[self.weights + self.random_scales : self.scales.stop])
        others, learned = (columns.expand(z.shape[0], -1) for columns in fixed)
        scales, noise = z[:, self.random_weights : random_scales], z[:, random_scales:]
        blocks = (z[:, : self.random_weights], others, scales, learned, noise)
        present = [block for block in blocks if block.shape[1]]
        return torch.cat(present, 1) if len(present) > 1 else present[0]
