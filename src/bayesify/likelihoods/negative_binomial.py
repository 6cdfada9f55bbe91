"""Counts that vary more than Poisson's: `variance = mean + dispersion * mean^2`, with `mean = exp(output)`.

With `r = 1 / dispersion`: `p(y) = Gamma(y + r) / (Gamma(r) y!) (r / (r + mean))^r (mean / (r + mean))^y` (J. Lawless,
"Negative binomial and mixed Poisson regression", 1987).
"""

from __future__ import annotations

import math
from typing import Any

import scipy
import torch
from torch import Tensor, nn
from torch.nn import functional

from bayesify.errors import nearest
from bayesify.likelihoods.counts import Counts
from bayesify.likelihoods.scaled import log_softplus
from bayesify.likelihoods.shapes import aligned, one_number, real

_KNOWN = ("learned", "heteroscedastic")


class NegativeBinomial(Counts):
    """A count with more variance than Poisson's: `variance = mean + dispersion * mean^2`, `mean = exp(output)`.

    Args:
        dispersion: a number above 0; `"learned"`, one positive parameter; or `"heteroscedastic"`, one for every input,
            from the second half of the outputs (`softplus(raw)`).
        initial: the start value of a learned dispersion.

    Examples:
        >>> likelihood = bf.likelihoods.NegativeBinomial(dispersion=0.5)
        >>> outputs = torch.tensor([[[4.0]]]).log()
        >>> likelihood.mean(outputs), likelihood.noise_variance(outputs)
        (tensor([[4.]]), tensor([[12.]]))

    """

    name = "negative-binomial"
    text_options = ("dispersion", "initial")
    log_dispersion: nn.Parameter | None

    def __init__(self, dispersion: float | str = "learned", initial: float = 1.0) -> None:
        super().__init__()
        if isinstance(dispersion, str) and dispersion not in _KNOWN:
            known = " or ".join(_KNOWN)
            raise ValueError(
                f"dispersion must be a number above 0, {known}, got {dispersion!r}{nearest(dispersion, _KNOWN)}"
            )
        if not isinstance(dispersion, str) and not 0 < dispersion < math.inf:
            raise ValueError(f"dispersion must be above 0, got {dispersion}: for none use poisson")
        if not 0 < initial < math.inf:
            raise ValueError(f"initial must be a dispersion above 0, got {initial}")
        self.dispersion, self.initial = dispersion, initial
        self.parameters_per_target = 2 if dispersion == "heteroscedastic" else 1
        learned = nn.Parameter(torch.tensor(math.log(initial))) if dispersion == "learned" else None
        self.register_parameter("log_dispersion", learned)

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """`log p(y)` of the counts, summed over the targets of an example.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets `[batch, ...]`.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        log_mean, log_dispersion = self._log_parameters(outputs)
        shape = log_mean.shape
        log_mean, counts = aligned(log_mean, targets)
        log_size = -(log_dispersion.expand(shape).reshape(log_mean.shape) if log_dispersion.ndim else log_dispersion)
        counts = counts.to(log_mean.dtype)
        # In double: logarithms of large gamma functions nearly cancel.
        size, many = log_size.double().exp(), counts.double()
        binomial = torch.lgamma(many + size) - torch.lgamma(size) - torch.lgamma(many + 1)
        failures = -size.to(log_mean.dtype) * functional.softplus(log_mean - log_size)
        successes = -counts * functional.softplus(log_size - log_mean)
        return (binomial.to(log_mean.dtype) + failures + successes).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean `exp(output)`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return one_number(self._log_parameters(outputs)[0].exp())

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance `mean + dispersion * mean^2`.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        log_mean, log_dispersion = self._log_parameters(outputs)
        mean = log_mean.exp()
        return one_number(mean + log_dispersion.exp() * mean.square())

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability of a count at most `values`: the incomplete beta function `I(r / (r + mean); r, values + 1)`.

        Args:
            outputs: `[draws, batch, ...]`.
            values: targets, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        log_mean, log_dispersion = self._log_parameters(outputs)
        share = one_number(torch.sigmoid(-log_mean - log_dispersion)).detach().double().cpu().numpy()
        size = one_number((-log_dispersion).exp().expand_as(log_mean)).detach().double().cpu().numpy()
        counts = values.floor()
        places = (counts.clamp(min=0) + 1).detach().double().cpu().numpy()
        probability = torch.from_numpy(scipy.special.betainc(size, places, share)).to(log_mean)
        return torch.where(counts >= 0, probability, 0.0)

    def information_root(self, outputs: Tensor) -> Tensor:
        """The root of the Fisher information of the outputs, `mean / (1 + dispersion * mean)`, for one dispersion.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            A tensor shaped like the outputs.

        """
        log_mean, log_dispersion = self._log_parameters(outputs)
        return (0.5 * (log_mean - functional.softplus(log_mean + log_dispersion))).exp()

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter."""
        settings: dict[str, Any] = {"dispersion": self.dispersion}
        return settings | ({"initial": self.initial} if self.dispersion == "learned" else {})

    def _log_parameters(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of mean and dispersion; the last may need broadcasting."""
        outputs = real(outputs)
        if self.dispersion == "heteroscedastic":
            if outputs.ndim < 3 or outputs.shape[2] % 2:
                raise ValueError(f"heteroscedastic dispersion needs 2 outputs per target, got {outputs.shape[2:]}")
            log_mean, raw = outputs.chunk(2, 2)
            return log_mean, log_softplus(raw)
        if self.log_dispersion is not None:
            return outputs, self.log_dispersion.to(outputs.dtype)
        return outputs, outputs.new_full((), math.log(float(self.dispersion)))
