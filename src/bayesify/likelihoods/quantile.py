"""Quantiles of a number, one output for each level: intervals without an assumption about the shape of the noise.

Training minimises the pinball loss of each level (R. Koenker and G. Bassett, "Regression quantiles", 1978), as the
asymmetric Laplace density whose mode is that quantile (K. Yu and R. Moyeed, "Bayesian quantile regression", 2001):

    log p = mean over levels q of  log(q (1 - q) / noise) - max(q u, (q - 1) u),    u = (y - quantile_q) / noise

No single distribution has this density, so it is a pseudo-likelihood. Predictions and scores use a distribution through
the quantiles instead: uniform between neighbouring ones, with exponential tails, its density continuous at both ends.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.errors import counted
from bayesify.likelihoods.scaled import PerTarget, Scaled
from bayesify.likelihoods.shapes import aligned, one_number, real

# The smallest distance between neighbouring quantiles, in standardised units.
_CLOSEST = 1e-4


class Quantile(Scaled):
    """Quantiles of a number (or of several), for intervals without an assumption about the shape of the noise.

    Each target needs one output per level. Quantiles that cross are sorted. The training objective is a
    pseudo-likelihood, in which each example counts once; `log_density`, moments and intervals are those of the
    distribution through the quantiles.

    Args:
        levels: at least two probabilities between 0 and 1, in increasing order.
        noise: the scale of the pinball loss in the units of the targets, or `"learned"`, in standardised units.
        initial: the start value of a learned scale, in standardised units.
        location: the target at an output of 0 (plus the quantile of a standard normal), a number or one per target.
        scale: the change of the target per unit of output, likewise; above 0.

    Examples:
        >>> likelihood = bf.likelihoods.Quantile([0.25, 0.5, 0.75])
        >>> likelihood.quantile(torch.zeros(1, 1, 3), torch.tensor(0.75))
        tensor([[0.6745]])

    """

    name = "quantile"
    text_options = ("levels",)
    log_noise: nn.Parameter | None
    _levels: Tensor
    _starts: Tensor

    def __init__(
        self,
        levels: Any = (0.05, 0.25, 0.5, 0.75, 0.95),
        noise: float | str = "learned",
        initial: float = 0.3,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        super().__init__(location, scale)
        self.levels = _checked_levels(levels)
        if noise != "learned" and (isinstance(noise, str) or not 0 < noise < math.inf):
            raise ValueError(f"noise must be a number above 0 or learned, got {noise!r}")
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be above 0, got {initial}")
        self.noise, self.initial = noise, initial
        self.parameters_per_target = len(self.levels)
        learned = nn.Parameter(torch.tensor(math.log(initial))) if noise == "learned" else None
        self.register_parameter("log_noise", learned)
        known = torch.tensor(self.levels, dtype=torch.float64)
        self.register_buffer("_levels", known, persistent=False)
        self.register_buffer("_starts", torch.special.ndtri(known), persistent=False)

    @property
    def remark(self) -> str | None:
        """What `summary()` says about the objective."""
        return "quantiles are trained by their pinball losses, which make a pseudo-likelihood"

    @classmethod
    def from_words(cls, words: list[Any]) -> dict[str, Any]:
        """All words are levels.

        Args:
            words: the options of a text form.

        Returns:
            The constructor's arguments.

        """
        return {"levels": words} if words else {}

    @classmethod
    def to_words(cls, spec: dict[str, Any]) -> list[str]:
        """The levels.

        Args:
            spec: a description as plain JSON.

        Returns:
            The options of a text form.

        """
        return [f"{level:g}" for level in spec.get("levels", ())]

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The pseudo-likelihood: the mean over levels, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        location, scale, quantiles = self._standardised(outputs)
        quantiles, centred = _paired(quantiles, targets, location, scale)
        if self.log_noise is not None:
            log_noise = self.log_noise.to(quantiles.dtype)
        else:
            log_noise = math.log(float(self.noise)) - _per_target(scale, quantiles)
            log_noise = log_noise.unsqueeze(-1) if log_noise.ndim else log_noise
        levels = self._levels.to(quantiles.dtype)
        u = (centred.unsqueeze(-1) - quantiles) * torch.exp(-log_noise)
        losses = torch.maximum(levels * u, (levels - 1) * u)
        densities = (levels * (1 - levels)).log() - log_noise - losses
        return (densities.mean(-1) - _per_target(scale, quantiles)).sum(-1)

    def log_density(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """The log density of the distribution through the quantiles, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        location, scale, raw = self._standardised(outputs)
        raw, centred = _paired(raw, targets, location, scale)
        first, gaps, lower, upper = self._shape(raw)
        shares = self._levels.diff().to(raw.dtype)
        below = centred - first
        ends = first.unsqueeze(-1) + gaps.cumsum(-1)
        segment = (centred.unsqueeze(-1) > ends[..., :-1]).sum(-1, keepdim=True)
        inside = (shares / gaps).log().gather(-1, segment).squeeze(-1)
        above = centred - ends[..., -1]
        densities = inside + below.clamp(max=0.0) / lower - above.clamp(min=0.0) / upper
        return (densities - _per_target(scale, raw)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean of the distribution through the quantiles.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, scale, raw = self._standardised(outputs)
        return one_number(location + scale * self._moments(raw)[0])

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the distribution through the quantiles.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        _, scale, raw = self._standardised(outputs)
        return one_number(scale**2 * self._moments(raw)[1])

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a target at most `values`: linear between the quantiles, exponential tails.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, scale, raw = self._standardised(outputs)
        first, gaps, lower, upper = self._shape(raw)
        last = first.ndim == 3 and first.shape[-1] == 1  # one target: its axis is not in `values`
        y = ((values.unsqueeze(-1) if last else values) - location) / scale
        levels = self._levels.to(raw.dtype)
        starts = first.unsqueeze(-1) + gaps.cumsum(-1) - gaps
        inside = (((y.unsqueeze(-1) - starts) / gaps).clamp(0.0, 1.0) * levels.diff()).sum(-1)
        below = levels[0] * torch.exp((y - first).clamp(max=0.0) / lower)
        above = -(1 - levels[-1]) * torch.expm1(-(y - first - gaps.sum(-1)).clamp(min=0.0) / upper)
        return one_number(below + inside + above)

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles: linear between the given levels, exponential tails outside.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        location, scale, raw = self._standardised(outputs)
        first, gaps, lower, upper = self._shape(raw)
        last = first.ndim == 3 and first.shape[-1] == 1 and levels.ndim > 0
        wanted = (levels.unsqueeze(-1) if last else levels).to(raw)
        known = self._levels.to(raw.dtype)
        inside = (gaps * ((wanted.unsqueeze(-1) - known[:-1]) / known.diff()).clamp(0.0, 1.0)).sum(-1)
        below = lower * (wanted / known[0]).clamp(max=1.0).log()
        above = -upper * ((1 - wanted) / (1 - known[-1])).clamp(max=1.0).log()
        return one_number(location + scale * (first + inside + below + above))

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter or are the default."""
        settings: dict[str, Any] = {"levels": self.levels, "noise": self.noise}
        return settings | ({"initial": self.initial} if self.noise == "learned" else {}) | self.units()

    def _standardised(self, outputs: Tensor) -> tuple[Tensor | float, Tensor | float, Tensor]:
        """Location, scale, and quantiles in standardised units `[draws, batch, targets, ..., levels]`."""
        outputs = real(outputs)
        size = self.parameters_per_target
        if outputs.ndim < 3 or outputs.shape[2] % size:
            raise ValueError(f"Quantile needs {counted(size, 'output')} per target, got {list(outputs.shape[2:])}")
        pieces = outputs.chunk(size, 2)
        location, scale = (self._per_target_values(name, pieces[0]) for name in ("location", "scale"))
        return location, scale, torch.stack(pieces, -1) + self._starts.to(outputs.dtype)

    def _shape(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The first quantile, the distances of the others, and the scales of both tails."""
        ordered = raw.sort(-1).values
        gaps = ordered.diff(dim=-1).clamp(min=_CLOSEST)
        levels = self._levels.to(raw.dtype)
        shares = levels.diff()
        lower, upper = levels[0] * gaps[..., 0] / shares[0], (1 - levels[-1]) * gaps[..., -1] / shares[-1]
        return ordered[..., 0], gaps, lower, upper

    def _moments(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the distribution through the quantiles, in standardised units."""
        first, gaps, lower, upper = self._shape(raw)
        levels = self._levels.to(raw.dtype)
        shares = torch.cat((levels[:1], levels.diff(), 1 - levels[-1:]))
        ends = first.unsqueeze(-1) + gaps.cumsum(-1)
        centres = torch.cat(
            ((first - lower).unsqueeze(-1), ends - 0.5 * gaps, (ends[..., -1] + upper).unsqueeze(-1)), -1
        )
        within = torch.cat((lower.square().unsqueeze(-1), gaps.square() / 12, upper.square().unsqueeze(-1)), -1)
        mean = (shares * centres).sum(-1)
        return mean, (shares * (within + (centres - mean.unsqueeze(-1)).square())).sum(-1)


def _checked_levels(levels: Any) -> list[float]:
    try:
        known = [float(level) for level in levels]
    except (TypeError, ValueError):
        raise ValueError(f"levels must be probabilities such as 0.05,0.5,0.95, got {levels!r}") from None
    if len(known) < 2:
        raise ValueError(f"levels must be at least two, got {known}: for the median alone use laplace")
    if not all(0 < level < 1 for level in known) or known != sorted(set(known)):
        raise ValueError(f"levels must lie between 0 and 1 and increase, got {known}")
    return known


def _paired(
    quantiles: Tensor, targets: Tensor, location: Tensor | float, scale: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Quantiles `[draws, batch, size, levels]` and standardised targets `[batch, size]`."""
    shape = quantiles.shape[1:-1]
    quantiles, numbers = aligned(quantiles, targets, trailing=1)
    return quantiles, ((numbers.reshape(shape) - location) / scale).to(quantiles.dtype).reshape(numbers.shape)


def _per_target(scale: Tensor | float, quantiles: Tensor) -> Tensor:
    """The log scale of each target, to broadcast against `[draws, batch, size]`, for quantiles with one more axis."""
    if not isinstance(scale, Tensor):
        return quantiles.new_full((), math.log(scale))
    repeated = quantiles.shape[2] // len(scale)
    return scale.log().to(quantiles).reshape(-1, 1).expand(-1, repeated).reshape(-1)
