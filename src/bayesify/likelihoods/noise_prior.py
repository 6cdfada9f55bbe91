"""The prior of a Gaussian noise sigma, as a density of `u = log sigma`, Jacobian included.

a hyperprior of scales (HalfNormal, HalfCauchy, InverseGamma)    its density of u
Flat(), p(sigma) = 1 for sigma > 0                               log p(u) = u
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from bayesify.priors import Flat, Hyperprior
from bayesify.priors.hyperpriors import HYPERPRIORS, parse_hyperprior

# The text forms that a likelihood's error names.
EXAMPLES = ("half-cauchy(1)", "half-normal(1)", "inverse-gamma(1,1)", "flat")


@dataclass(frozen=True)
class NoisePrior:
    """What is believed about a noise sigma > 0 before data, in the units of the targets."""

    density: Hyperprior | Flat

    def __post_init__(self) -> None:
        density = self.density
        if isinstance(density, Hyperprior) and density.learned:
            raise ValueError("a learned noise has no prior: write noise='learned'")
        if isinstance(density, Hyperprior) and density.per != "pattern":
            raise ValueError(f"a noise belongs to no layer: leave out per={density.per!r} in {density.text}")

    @property
    def proper(self) -> bool:
        """Whether the density integrates to one."""
        return isinstance(self.density, Hyperprior)

    @property
    def text(self) -> str:
        """The form in a likelihood's text, such as `half-cauchy(2.5)` or `flat`."""
        return self.density.text

    def log_density(self, log_noise: Tensor) -> Tensor:
        """The log density of u = log sigma, Jacobian included; a tensor of the same shape."""
        return self.density.log_density(log_noise) if isinstance(self.density, Hyperprior) else log_noise

    def log_density_of_noise(self, log_noise: Tensor) -> Tensor:
        """The log density of sigma itself at u = log sigma, whose maximum is that of sigma."""
        return self.log_density(log_noise) - log_noise


def read_noise_prior(noise: object) -> NoisePrior | None:
    """The prior that the argument `noise` of a likelihood names; None where it names none."""
    if isinstance(noise, Hyperprior | Flat):
        return NoisePrior(noise)
    if isinstance(noise, type):
        example = "Flat()" if noise is Flat else f"{noise.__name__}(...)"
        raise TypeError(f"noise must be a number, a text or a prior, got the class {noise.__name__}: write {example}")
    if not isinstance(noise, str):
        return None
    word = noise.strip().lower().replace("_", "-")
    if word == Flat.name:
        return NoisePrior(Flat())
    name = word.partition("(")[0].strip()
    if "(" in word or (name in HYPERPRIORS and not HYPERPRIORS[name].learned) or re.match(r"half|inverse", word):
        return NoisePrior(parse_hyperprior(word, f"gaussian:{noise}"))
    return None
