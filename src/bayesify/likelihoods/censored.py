"""Numbers that are known only to lie beyond a limit: a scale that ends, a detection limit, a study that ended.

    observed: log p(y)        at or below a lower limit: log P(Y <= y)        at or above an upper limit: log P(Y >= y)

(J. Tobin, "Estimation of relationships for limited dependent variables", 1958). Predictions are those of the number
itself, as it would be without limits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods.location_scale import LocationScale
from bayesify.likelihoods.regression import Regression
from bayesify.likelihoods.scaled import PerTarget


class Censored(Regression):
    """A number with another likelihood, of which some targets are known only up to a limit.

    Which targets are censored follows from limits that all examples share: `lower=0` says that a target of 0 or less
    is "0 or less". Without limits every target is a pair `(number, side)`, `[batch, 2]`: side 0 is observed, 1 says
    "at least the number" (a study that ended before the event), -1 says "at most the number".

    Args:
        likelihood: of the number itself, `Gaussian` or `Laplace`, or its text.
        lower: the lower limit in the units of the targets, or None.
        upper: the upper limit, or None.
        location: replaces that of the likelihood, where given.
        scale: replaces that of the likelihood, where given.

    Examples:
        >>> likelihood = bf.likelihoods.Censored(bf.likelihoods.Gaussian(1.0), lower=0.0)
        >>> likelihood.log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0]))  # log P(Y <= 0), log p(1)
        tensor([[-0.6931, -1.4189]])

    """

    name = "censored"
    text_options = ("lower", "upper", "likelihood")
    from_data = ("location", "scale")

    def __init__(
        self,
        likelihood: LocationScale | dict[str, Any] | str = "gaussian:learned",
        lower: float | str | None = None,
        upper: float | str | None = None,
        location: PerTarget | None = None,
        scale: PerTarget | None = None,
    ) -> None:
        super().__init__()
        self.lower, self.upper = _limit("lower", lower), _limit("upper", upper)
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower:g} and {self.upper:g}")
        base = _read(likelihood)
        if (
            not isinstance(base, LocationScale)
            or not base.has_log_cdf
            or getattr(base, "noise_prior", None) is not None
        ):
            raise ValueError(
                f"censored targets need a gaussian (noise known, learned or heteroscedastic) or laplace likelihood, "
                f"got {base!r}"
            )
        given = {name: value for name, value in (("location", location), ("scale", scale)) if value is not None}
        self.likelihood = _read(base.spec() | given) if given else base
        self.parameters_per_target = base.parameters_per_target

    @property
    def limited(self) -> bool:
        """Whether limits say what is censored, and not a second column of the targets."""
        return self.lower is not None or self.upper is not None

    def prepare(self, targets: Any) -> Tensor:
        """Numbers `[batch, ...]`, or pairs `(number, side)` `[batch, 2]` where there are no limits.

        Args:
            targets: a tensor, an array or a sequence with one row per example.

        Returns:
            Prepared targets.

        Raises:
            ValueError: if a target is not finite, or a side is none of -1, 0 and 1.

        """
        numbers = super().prepare(targets)
        if self.limited:
            return numbers.clamp(self.lower, self.upper)
        if numbers.ndim != 2 or numbers.shape[1] != 2:
            raise ValueError(
                "Censored without limits needs targets [batch, 2], a number and its side (0 observed, 1 at least, "
                f"-1 at most), got {list(numbers.shape)}: give lower= or upper= (censored:0,none) or that column"
            )
        sides = numbers[:, 1]
        wrong = sides[(sides != 0) & (sides.abs() != 1)]
        if len(wrong):
            raise ValueError(f"the side of a censored target must be -1, 0 or 1, got {wrong[0].item():g}")
        return numbers

    def compared(self, targets: Tensor) -> Tensor:
        """The numbers, without the sides.

        Args:
            targets: prepared targets.

        Returns:
            Numbers `[batch, ...]`.

        """
        return targets if self.limited else targets[:, 0]

    def sides(self, targets: Tensor) -> Tensor:
        """For each target 0 (observed), 1 (at least) or -1 (at most), shaped like `compared(targets)`.

        Args:
            targets: prepared targets.

        Returns:
            Sides.

        """
        if not self.limited:
            return targets[:, 1]
        sides = torch.zeros_like(targets)
        if self.lower is not None:
            sides = torch.where(targets <= self.lower, -1.0, sides)
        if self.upper is not None:
            sides = torch.where(targets >= self.upper, 1.0, sides)
        return sides

    def width(self, targets: Tensor) -> int:
        """The number of outputs: those of the likelihood of the numbers.

        Args:
            targets: prepared targets `[batch, ...]`.

        Returns:
            The size of the output layer.

        """
        return self.likelihood.width(self.compared(targets))

    def check_outputs(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless the outputs fit the targets.

        Args:
            outputs: of the network, without a draws axis, `[batch, ...]`.
            targets: prepared targets.

        Raises:
            ValueError: if the shapes do not fit.

        """
        self.likelihood.check_outputs(outputs, self.compared(targets))

    def log_prob(self, outputs: Tensor, targets: Tensor, keys: Tensor | None = None) -> Tensor:
        """Log densities of observed targets and log probabilities of censored ones, summed over an example's targets.

        Args:
            outputs: `[draws, batch, ...]`.
            targets: prepared targets.
            keys: not used.

        Returns:
            One number per draw and example, `[draws, batch]`.

        """
        base = self.likelihood
        z, log_noise = base.standardised(outputs, self.compared(targets))
        sides = self.sides(targets).reshape(z.shape[1:]).to(z.dtype)
        density = base.standard_log_density(z) - log_noise
        return torch.where(sides == 0, density, base.standard_log_cdf(-sides * z)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """The mean of the number itself, without limits.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.likelihood.mean(outputs)

    def noise_variance(self, outputs: Tensor) -> Tensor:
        """The variance of the number itself, without limits.

        Args:
            outputs: `[draws, batch, ...]`.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.likelihood.noise_variance(outputs)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """The probability that the number itself is at most `values`.

        Args:
            outputs: `[draws, batch, ...]`.
            values: numbers, shaped like the mean of one draw or of all draws.

        Returns:
            Probabilities `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.likelihood.cdf(outputs, values)

    def quantile(self, outputs: Tensor, levels: Tensor) -> Tensor:
        """The quantiles of the number itself.

        Args:
            outputs: `[draws, batch, ...]`.
            levels: probabilities strictly between 0 and 1, shaped like the mean of one draw or of all draws.

        Returns:
            `[draws, batch]` or `[draws, batch, *dims]`.

        """
        return self.likelihood.quantile(outputs, levels)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON."""
        inside: dict[str, Any] = self.likelihood.spec()
        units = {name: inside.pop(name, default) for name, default in (("location", 0.0), ("scale", 1.0))}
        return {"likelihood": inside, "lower": self.lower, "upper": self.upper, **units}

    @classmethod
    def to_words(cls, spec: dict[str, Any]) -> list[str]:
        """The limits, and the name of the likelihood.

        Args:
            spec: a description as plain JSON.

        Returns:
            The options of a text form.

        """
        from bayesify.likelihoods.text import spec_text

        inside = spec_text(spec["likelihood"]) or ""
        name, _, options = inside.partition(":")
        limits = ["none" if spec[side] is None else f"{spec[side]:g}" for side in ("lower", "upper")]
        return [*limits, f"{name}({options})" if options else name]


def _read(likelihood: Any) -> Any:
    from bayesify.likelihoods.text import from_spec, parse

    if isinstance(likelihood, str):
        name, _, options = likelihood.removesuffix(")").partition("(")
        text = f"{name}:{options}" if options else name
        return parse("gaussian:learned" if text == "gaussian" else text)
    return from_spec(likelihood) if isinstance(likelihood, dict) else likelihood


def _limit(name: str, limit: Any) -> float | None:
    if limit is None or limit == "none":
        return None
    if isinstance(limit, bool | str) or not math.isfinite(limit):
        raise ValueError(f"{name} must be a finite number or none, got {limit!r}")
    return float(limit)
