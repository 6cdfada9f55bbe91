"""Hyperpriors: the distribution of a prior's scale, if the scale is not a number but a variable.

A scale tau is positive, so everything here is about u = log tau, whose density includes the Jacobian d tau / d u = tau:

    HalfNormal(s)                       log p(u) = log(2 / pi) / 2 + d - exp(2 d) / 2,    d = u - log s
    HalfCauchy(s)                       log p(u) = log(2 / pi) + d - log(1 + exp(2 d))
    InverseGamma(a, b) on tau^2 = v     log p(u) = a log b - log Gamma(a) - 2 a u - b exp(-2 u) + log 2
    InverseGamma(a, b) on tau           log p(u) = a log b - log Gamma(a) - a u - b exp(-u)

The half-Cauchy is recommended by A. Gelman, "Prior distributions for variance parameters in hierarchical models", 2006.
The inverse gamma on the variance is conjugate to a normal prior. `Learned()` has no density: its scale is a parameter
(empirical Bayes). With `per="pattern"` all tensors of a name pattern share one scale (a prior without patterns has one
for all weights), with `per="layer"` those of each layer do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bayesify import noise
from bayesify.errors import choose, nearest
from bayesify.priors.arguments import argument_fields, check, number_text

PER = ("pattern", "layer")
ON = ("variance", "scale")
LOG_TWO_OVER_PI = math.log(2 / math.pi)


class Hyperprior(ABC):
    """The base class of hyperpriors: a density over `u = log tau`, the logarithm of a prior's scale tau.

    Examples:
        >>> prior = bf.priors.parse("normal:half-cauchy(1)")
        >>> prior.scale
        HalfCauchy(scale=1.0, per='pattern')
        >>> prior.scale.text
        'half-cauchy(1)'

    """

    name: ClassVar[str]
    learned: ClassVar[bool] = False

    per: str = "pattern"

    @property
    @abstractmethod
    def initial(self) -> float:
        """The start value of log tau: the mode of its density."""

    @abstractmethod
    def log_density(self, log_scale: Tensor) -> Tensor:
        """The log density of u = log tau, Jacobian included.

        Args:
            log_scale: values of u = log tau, any shape.

        Returns:
            A tensor of the shape of `log_scale`.

        """

    @abstractmethod
    def sample(self, keys: Tensor) -> Tensor:
        """One draw of log tau for each key.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Draws `[..., 1]`.

        """

    @property
    def text(self) -> str:
        """The form that takes the place of the scale in a prior's text, such as `half-cauchy(1,layer)`."""
        values = [(getattr(self, field.name), field.default) for field in argument_fields(type(self))]
        # Numbers are always written, words (`scale`, `layer`) only if they are not the default.
        words = [
            value if isinstance(value, str) else number_text(value)
            for value, default in values
            if not isinstance(value, str) or value != default
        ]
        return f"{self.name}({','.join(words)})" if words else self.name

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Half(Hyperprior):
    """The absolute value of a symmetric distribution with a scale."""

    scale: float = 1.0
    per: str = "pattern"

    def __post_init__(self) -> None:
        check(self, "scale", above_zero=True)
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        """`log(scale)`."""
        return math.log(self.scale)


@dataclass(frozen=True)
class HalfNormal(_Half):
    """The half-normal hyperprior, `tau = |N(0, scale^2)|`.

    `log p(u) = log(2 / pi) / 2 + d - exp(2 d) / 2` with `u = log tau` and `d = u - log(scale)`.

    Args:
        scale: of the normal, above zero.
        per: `"pattern"` for one scale per name pattern, `"layer"` for one per layer.

    Examples:
        >>> bf.priors.HalfNormal(1.0).log_density(torch.tensor([-3.0, 0.0, 3.0]))
        tensor([  -3.2270,   -0.7258, -198.9402])

    """

    name = "half-normal"

    def log_density(self, log_scale: Tensor) -> Tensor:
        """`log(2 / pi) / 2 + d - exp(2 d) / 2` with `d = u - log(scale)`.

        Args:
            log_scale: values of u = log tau, any shape.

        Returns:
            A tensor of the shape of `log_scale`.

        """
        distance = log_scale - math.log(self.scale)
        return 0.5 * LOG_TWO_OVER_PI + distance - 0.5 * torch.exp(2.0 * distance)

    def sample(self, keys: Tensor) -> Tensor:
        """Logarithms of absolute normals.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Draws `[..., 1]`.

        """
        # One normal in 2^24 rounds to exactly zero, whose logarithm is minus infinity.
        return torch.log(noise.normal(keys, 1).abs().clamp(min=2**-24)) + math.log(self.scale)


@dataclass(frozen=True)
class HalfCauchy(_Half):
    """The half-Cauchy hyperprior, `tau = |Cauchy(0, scale)|`: half of its mass lies above `scale`, with a heavy tail.

    `log p(u) = log(2 / pi) + d - log(1 + exp(2 d))` with `u = log tau` and `d = u - log(scale)` (A. Gelman, "Prior
    distributions for variance parameters in hierarchical models", 2006).

    Args:
        scale: the median of tau, above zero.
        per: `"pattern"` for one scale per name pattern, `"layer"` for one per layer.

    Examples:
        >>> bf.priors.HalfCauchy(1.0).log_density(torch.tensor([-3.0, 0.0, 3.0]))
        tensor([-3.4541, -1.1447, -3.4541])

    """

    name = "half-cauchy"

    def log_density(self, log_scale: Tensor) -> Tensor:
        """`log(2 / pi) + d - log(1 + exp(2 d))` with `d = u - log(scale)`.

        Args:
            log_scale: values of u = log tau, any shape.

        Returns:
            A tensor of the shape of `log_scale`.

        """
        distance = log_scale - math.log(self.scale)
        return LOG_TWO_OVER_PI + distance - functional.softplus(2.0 * distance)

    def sample(self, keys: Tensor) -> Tensor:
        """Logarithms of absolute Cauchy draws.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Draws `[..., 1]`.

        """
        # The tangent of the distance to the nearer end keeps the digits of both tails.
        u = noise.uniform(keys, 1)
        near = torch.log(torch.tan(0.5 * math.pi * torch.minimum(u, 1.0 - u)))
        return torch.where(u < 0.5, near, -near) + math.log(self.scale)


@dataclass(frozen=True)
class InverseGamma(Hyperprior):
    """The inverse-gamma hyperprior on `tau^2`, or on tau itself with `on="scale"`.

    On the variance, `log p(u) = a log b - log Gamma(a) - 2 a u - b exp(-2 u) + log 2` with `u = log tau`; on the scale,
    `log p(u) = a log b - log Gamma(a) - a u - b exp(-u)`. On the variance it is conjugate to a normal prior.

    Args:
        a: the shape, above zero.
        b: the scale, above zero.
        on: `"variance"` or `"scale"`.
        per: `"pattern"` for one scale per name pattern, `"layer"` for one per layer.

    Examples:
        >>> bf.priors.InverseGamma(2.0, 1.0).log_density(torch.tensor([-1.0, 0.0]))
        tensor([-2.6959, -0.3069])
        >>> bf.priors.InverseGamma(2.0, 1.0, on="scale").text
        'inverse-gamma(2,1,scale)'

    """

    name = "inverse-gamma"

    a: float = 1.0
    b: float = 1.0
    on: str = "variance"
    per: str = "pattern"

    def __post_init__(self) -> None:
        check(self, "a", above_zero=True)
        check(self, "b", above_zero=True)
        choose("on", self.on, ON)
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        """`log(b / a) / 2` on the variance, `log(b / a)` on the scale."""
        return (math.log(self.b) - math.log(self.a)) / self._power

    def log_density(self, log_scale: Tensor) -> Tensor:
        """The log density of u = log tau, Jacobian included.

        Args:
            log_scale: values of u = log tau, any shape.

        Returns:
            A tensor of the shape of `log_scale`.

        """
        log_value = self._power * log_scale
        constant = self.a * math.log(self.b) - math.lgamma(self.a) + math.log(self._power)
        return constant - self.a * log_value - torch.exp(math.log(self.b) - log_value)

    def sample(self, keys: Tensor) -> Tensor:
        """Logarithms of inverse-gamma draws (halved on the variance).

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Draws `[..., 1]`.

        """
        return (math.log(self.b) - _log_gamma_draws(keys, self.a)) / self._power

    @property
    def _power(self) -> float:
        return 2.0 if self.on == "variance" else 1.0


@dataclass(frozen=True)
class Learned(Hyperprior):
    """A scale without a density: a parameter, fitted together with the posterior (empirical Bayes); it starts at one.

    Args:
        per: `"pattern"` for one scale per name pattern, `"layer"` for one per layer.

    Examples:
        >>> prior = bf.priors.Normal(bf.priors.Learned(per="layer"))
        >>> prior.text
        'normal:learned(layer)'

    """

    name = "learned"
    learned = True

    per: str = "pattern"

    def __post_init__(self) -> None:
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        """Zero: the scale starts at one."""
        return 0.0

    def log_density(self, log_scale: Tensor) -> Tensor:
        """Zero: a learned scale has no density.

        Args:
            log_scale: values of u = log tau, any shape.

        Returns:
            A tensor of the shape of `log_scale`.

        """
        return 0.0 * log_scale  # zeros with a gradient

    def sample(self, keys: Tensor) -> Tensor:
        """Always raises a ValueError: a learned scale has no distribution.

        Args:
            keys: noise keys `[..., 2]`, from `bf.noise.keys`.

        Returns:
            Draws `[..., 1]`.

        """
        raise ValueError("a learned scale has no prior and cannot be sampled: use a hyperprior such as half-cauchy(1)")


HYPERPRIORS: dict[str, type[Hyperprior]] = {kind.name: kind for kind in (HalfNormal, HalfCauchy, InverseGamma, Learned)}


def parse_hyperprior(text: str, prior: str) -> Hyperprior:
    """The hyperprior that `text` names inside the text of a prior, such as `half-cauchy(1,layer)`."""
    name, parenthesis, rest = text.strip().lower().replace("_", "-").partition("(")
    name = name.strip()
    if name not in HYPERPRIORS:
        raise ValueError(f"unknown hyperprior {text!r} in prior {prior!r}{nearest(name, HYPERPRIORS)}")
    kind = HYPERPRIORS[name]
    numbers = [field.name for field in argument_fields(kind) if not isinstance(field.default, str)]
    inside = rest.removesuffix(")").strip()
    words = [word.strip() for word in inside.split(",")] if inside else []
    settings: dict[str, float | str] = {}
    if words and words[-1] in PER:
        settings["per"] = words.pop()
    if kind is InverseGamma and words and words[-1] in ON:
        settings["on"] = words.pop()
    form = f"{name}({','.join(numbers)})" if numbers else name
    if (parenthesis and not rest.endswith(")")) or len(words) > len(numbers) or "" in words:
        options = "scale,layer" if kind is InverseGamma else "layer"
        raise ValueError(f"hyperprior {text!r} does not have the form {form}, optionally with {options} at its end")
    for argument, word in zip(numbers, words, strict=False):
        try:
            settings[argument] = float(word)
        except ValueError:
            raise ValueError(f"{argument} in hyperprior {text!r} must be a number, got {word!r}") from None
    try:
        return kind(**settings)
    except ValueError as problem:
        raise ValueError(f"{problem}, in hyperprior {text!r} of prior {prior!r}") from None


# At shapes above one the algorithm accepts at least 95 in 100 proposals: 24 in a row fail once in 10^31.
_PROPOSALS = 24


def _log_gamma_draws(keys: Tensor, shape: float) -> Tensor:
    """Logarithms of Gamma(shape, 1) draws, `[..., 2]` -> `[..., 1]`.

    A draw at shape + 1 times `u^(1 / shape)` (G. Marsaglia and W. Tsang, "A simple method for generating gamma
    variables", 2000).
    """
    d = shape + 1.0 - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    accepted, values = [], []
    for proposal in range(_PROPOSALS):
        proposal_keys = noise.fold(keys, proposal)
        x = noise.normal(proposal_keys, 1).double()
        u = noise.uniform(proposal_keys, 1, 1).double()  # element 0 is one of the two hashes behind the normal
        cube = (1.0 + c * x).clamp(min=0.0) ** 3
        log_cube = torch.log(cube)
        accepted.append((cube > 0.0) & (torch.log(u) < 0.5 * x * x + d - d * cube + d * log_cube))
        values.append(math.log(d) + log_cube)
    first = torch.stack(accepted).int().argmax(0, keepdim=True)
    boost = torch.log(noise.uniform(noise.fold(keys, _PROPOSALS), 1).double()) / shape
    return (torch.stack(values).gather(0, first)[0] + boost).to(torch.get_default_dtype())
