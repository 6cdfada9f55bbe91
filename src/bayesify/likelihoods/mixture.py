"""Numbers whose distribution may have several peaks: a mixture of normals for every input.

`p(y) = sum over k of softmax(a)_k N(y; m_k, s_k^2)`, with `a`, `m` and `s` from the outputs (C. Bishop, "Mixture
density networks", 1994).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.likelihoods.scaled import PerTarget, Scaled, log_softplus
from bayesify.likelihoods.shapes import aligned, one_number, real


class Mixture(Scaled):
    """A number (or several) with a mixture of normals for every input, for targets that have several likely values.

    Each target needs three outputs per component: the logits of the shares, the means and the raw widths, in this
    order. The means are `location + scale * (start_k + output)` with starts evenly spaced from -1 to 1, so that the
    components begin apart; the standard deviations are `scale * softplus(raw)`.

    Args:
        components: the number of normals, at least 2.
        location: the target at an output of 0, a number or one per target.
        scale: the change of the target per unit of output, likewise; above 0.

    Examples:
        >>> likelihood = bf.likelihoods.Mixture(components=2)
        >>> likelihood.width(torch.zeros(10))  # 2 shares, 2 means, 2 widths
        6
        >>> likelihood.mean(torch.zeros(1, 1, 6))
        tensor([[0.]])

    """

    name = "mixture"
    text_options = ("components",)

    def __init__(self, components: int = 3, location: PerTarget = 0.0, scale: PerTarget = 1.0) -> None:
        super().__init__(location, scale)
        self.components = at_least("components", components, 2)
        self.parameters_per_target = 3 * components

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The logarithm of the mixture's density, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        location, log_shares, deviations, log_stds = self._parts(outputs)
        shape = deviations.shape[:-1]
        deviations, numbers = aligned(deviations, targets, trailing=1)
        centred = (numbers.reshape(shape[1:]) - location).to(deviations.dtype).reshape(numbers.shape).unsqueeze(-1)
        log_shares, log_stds = log_shares.reshape(deviations.shape), log_stds.reshape(deviations.shape)
        z = (centred - deviations) * torch.exp(-log_stds)
        return (log_shares - 0.5 * z.square() - log_stds - 0.5 * math.log(2 * math.pi)).logsumexp(-1).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean of the mixture of each draw.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, log_shares, deviations, _ = self._parts(outputs)
        return one_number(location + (log_shares.exp() * deviations).sum(-1))

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the mixture of each draw: within its components, and between them.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        _, log_shares, deviations, log_stds = self._parts(outputs)
        shares = log_shares.exp()
        between = deviations - (shares * deviations).sum(-1, keepdim=True)
        return one_number((shares * (torch.exp(2 * log_stds) + between.square())).sum(-1))

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a target at most `values`.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, log_shares, deviations, log_stds = self._parts(outputs)
        last = deviations.ndim == 4 and deviations.shape[2] == 1  # one target: its axis is not in `values`
        centred = (values.unsqueeze(-1) if last else values) - location
        z = (centred.unsqueeze(-1) - deviations) * torch.exp(-log_stds)
        return one_number((log_shares.exp() * torch.special.ndtr(z)).sum(-1))

    def normals(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All normals of all draws, with equal weights of the draws.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            Means, standard deviations and shares, `[draws * components, batch]` or `[..., batch, *dims]`.

        """
        location, log_shares, deviations, log_stds = self._parts(outputs)
        means = (location.unsqueeze(-1) if isinstance(location, Tensor) else location) + deviations
        listed = (one_number(part.movedim(-1, 1).flatten(0, 1)) for part in (means, log_stds.exp(), log_shares.exp()))
        means, stds, shares = listed
        return means, stds, shares / len(outputs)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON."""
        return {"components": self.components} | self.units()

    def _parts(self, outputs: Tensor) -> tuple[Tensor | float, Tensor, Tensor, Tensor]:
        """Location; log shares, deviations of means and log widths, `[draws, batch, targets, ..., components]`."""
        outputs = real(outputs)
        if outputs.ndim < 3 or outputs.shape[2] % self.parameters_per_target:
            raise ValueError(
                f"Mixture needs {self.parameters_per_target} outputs per target, got {list(outputs.shape[2:])}"
            )
        pieces = outputs.chunk(self.parameters_per_target, 2)
        logits, means, widths = (
            torch.stack(pieces[first : first + self.components], -1)
            for first in range(0, self.parameters_per_target, self.components)
        )
        location, scale = (self._per_target_values(name, pieces[0]) for name in ("location", "scale"))
        starts = torch.linspace(-1.0, 1.0, self.components, device=outputs.device, dtype=outputs.dtype)
        each = scale.unsqueeze(-1) if isinstance(scale, Tensor) else scale
        log_scale = each.log() if isinstance(each, Tensor) else math.log(each)
        return location, logits.log_softmax(-1), each * (starts + means), log_softplus(widths) + log_scale
