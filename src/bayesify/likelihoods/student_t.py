"""Numbers with Student-t noise: normal in the middle, with heavy tails, so that outliers hardly move the mean.

`p(y) = Gamma((v + 1) / 2) / (Gamma(v / 2) sqrt(v pi) noise) (1 + z^2 / v)^(-(v + 1) / 2)`, `z = (y - mean) / noise`,
with `v` degrees of freedom (K. Lange, R. Little and J. Taylor, "Robust statistical modeling using the t distribution",
1989).
"""

from __future__ import annotations

import math
from typing import Any

import scipy
import torch
from torch import Tensor

from bayesify.likelihoods.location_scale import LocationScale
from bayesify.likelihoods.scaled import PerTarget


class StudentT(LocationScale):
    """A number (or several) with Student-t noise around `location + scale * output`.

    Args:
        df: degrees of freedom, above 2, so that the variance is finite. Fewer give heavier tails.
        noise: the scale of the noise in the units of the targets (its standard deviation is
            `noise * sqrt(df / (df - 2))`); `"learned"`, one parameter in standardised units; or `"heteroscedastic"`,
            one for every input, from the second half of the outputs.
        initial: the start value of a learned noise, in standardised units.
        location: the target at an output of 0, a number or one per target.
        scale: the change of the target per unit of output, likewise; above 0.

    Examples:
        >>> likelihood = bf.likelihoods.StudentT(df=4.0, noise=1.0)
        >>> likelihood.log_prob(torch.zeros(1, 2, 1), torch.tensor([0.0, 10.0]))
        tensor([[-0.9808, -9.1261]])

    """

    name = "student-t"
    text_options = ("df", "noise", "initial", "location", "scale")

    def __init__(
        self,
        df: float = 4.0,
        noise: float | str = "learned",
        initial: float = 1.0,
        location: PerTarget = 0.0,
        scale: PerTarget = 1.0,
    ) -> None:
        if not isinstance(df, int | float) or not 2 < df < math.inf:
            raise ValueError(f"df must be a number above 2, where the variance is finite, got {df!r}")
        super().__init__(noise, initial, location, scale)
        self.df = df
        self.standard_variance, self.standard_information = df / (df - 2), (df + 1) / (df + 3)

    def standard_log_density(self, z: Tensor) -> Tensor:
        """`-(v + 1) / 2 log(1 + z^2 / v)` plus its normalisation.

        Args:
            z: standardised residuals.

        Returns:
            Logarithms, shaped like `z`.

        """
        half = 0.5 * (self.df + 1)
        constant = math.lgamma(half) - math.lgamma(0.5 * self.df) - 0.5 * math.log(self.df * math.pi)
        return constant - half * torch.log1p(z.square() / self.df)

    def standard_cdf(self, z: Tensor) -> Tensor:
        """The distribution function of Student's t.

        Args:
            z: standardised residuals.

        Returns:
            Probabilities, shaped like `z`.

        """
        return torch.from_numpy(scipy.special.stdtr(self.df, z.detach().double().cpu().numpy())).to(z)

    def standard_quantile(self, levels: Tensor) -> Tensor:
        """The quantiles of Student's t.

        Args:
            levels: probabilities strictly between 0 and 1.

        Returns:
            Quantiles, shaped like `levels`.

        """
        values = scipy.special.stdtrit(self.df, levels.detach().double().cpu().numpy())
        return torch.as_tensor(values, dtype=torch.float64).to(levels)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, without those that do not matter or are the default."""
        return {"df": self.df} | super().settings()
