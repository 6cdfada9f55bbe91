"""Hyperpriors: what we believe about the scale of a prior, where it is not a number but a variable.

A scale tau is positive, so everything here is about u = log tau, whose density includes the Jacobian d tau / d u = tau:

    HalfNormal(s)                       log p(u) = log(2 / pi) / 2 + d - exp(2 d) / 2,    d = u - log s
    HalfCauchy(s)                       log p(u) = log(2 / pi) + d - log(1 + exp(2 d))
    InverseGamma(a, b) on tau^2 = v     log p(u) = a log b - log Gamma(a) - 2 a u - b exp(-2 u) + log 2
    InverseGamma(a, b) on tau           log p(u) = a log b - log Gamma(a) - a u - b exp(-u)

as recommended by Gelman (2006, "Prior distributions for variance parameters") and, on the variance, conjugate to a
normal prior. `Learned()` has no density: its scale is a parameter (empirical Bayes). One variable serves a whole name
pattern (`per="pattern"`; a prior without patterns is one for all) or each layer in it (`per="layer"`).
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
from bayesify.priors.arguments import check, number_text

PER = ("pattern", "layer")
ON = ("variance", "scale")
LOG_TWO_OVER_PI = math.log(2 / math.pi)


class Hyperprior(ABC):
    """A density over the logarithm of a scale."""

    name: ClassVar[str]
    learned: ClassVar[bool] = False

    per: str = "pattern"

    @property
    @abstractmethod
    def initial(self) -> float:
        """Where log tau starts: where its density is highest."""

    @abstractmethod
    def log_density(self, log_scale: Tensor) -> Tensor:
        """Elementwise log density of u = log tau, with the Jacobian."""

    @abstractmethod
    def sample(self, keys: Tensor) -> Tensor:
        """One draw of log tau for each key: `[..., 2]` -> `[..., 1]`."""

    @property
    def text(self) -> str:
        """The form that stands in a prior's text where a number would; `parse_hyperprior` reads it back."""
        words = [*self._words(), *([self.per] if self.per != "pattern" else [])]
        return f"{self.name}({','.join(words)})" if words else self.name

    def __str__(self) -> str:
        return self.text

    @abstractmethod
    def _words(self) -> list[str]: ...


@dataclass(frozen=True)
class HalfNormal(Hyperprior):
    """tau = |N(0, scale^2)|."""

    name = "half-normal"

    scale: float = 1.0
    per: str = "pattern"

    def __post_init__(self) -> None:
        check(self, "scale", above_zero=True)
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        return math.log(self.scale)

    def log_density(self, log_scale: Tensor) -> Tensor:
        distance = log_scale - math.log(self.scale)
        return 0.5 * LOG_TWO_OVER_PI + distance - 0.5 * torch.exp(2.0 * distance)

    def sample(self, keys: Tensor) -> Tensor:
        # One normal in 2^24 rounds to exactly zero, whose logarithm is no number.
        return torch.log(noise.normal(keys, 1).abs().clamp(min=2**-24)) + math.log(self.scale)

    def _words(self) -> list[str]:
        return [number_text(self.scale)]


@dataclass(frozen=True)
class HalfCauchy(Hyperprior):
    """tau = |Cauchy(0, scale)|: half of its mass above `scale`, with a heavy tail."""

    name = "half-cauchy"

    scale: float = 1.0
    per: str = "pattern"

    def __post_init__(self) -> None:
        check(self, "scale", above_zero=True)
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        return math.log(self.scale)

    def log_density(self, log_scale: Tensor) -> Tensor:
        distance = log_scale - math.log(self.scale)
        return LOG_TWO_OVER_PI + distance - functional.softplus(2.0 * distance)

    def sample(self, keys: Tensor) -> Tensor:
        # log tan and log cot of the nearer end: both tails keep their digits.
        u = noise.uniform(keys, 1)
        near = torch.log(torch.tan(0.5 * math.pi * torch.minimum(u, 1.0 - u)))
        return torch.where(u < 0.5, near, -near) + math.log(self.scale)

    def _words(self) -> list[str]:
        return [number_text(self.scale)]


@dataclass(frozen=True)
class InverseGamma(Hyperprior):
    """tau^2 (or tau itself, with `on="scale"`) is inverse-gamma with shape `a` and scale `b`."""

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
        return (math.log(self.b) - math.log(self.a)) / self._power

    def log_density(self, log_scale: Tensor) -> Tensor:
        log_value = self._power * log_scale
        constant = self.a * math.log(self.b) - math.lgamma(self.a) + math.log(self._power)
        return constant - self.a * log_value - torch.exp(math.log(self.b) - log_value)

    def sample(self, keys: Tensor) -> Tensor:
        return (math.log(self.b) - _log_gamma_draws(keys, self.a)) / self._power

    @property
    def _power(self) -> float:
        return 2.0 if self.on == "variance" else 1.0

    def _words(self) -> list[str]:
        words = [number_text(self.a), number_text(self.b)]
        return words if self.on == "variance" else [*words, self.on]


@dataclass(frozen=True)
class Learned(Hyperprior):
    """No density: the scale is a parameter, fitted with the posterior (empirical Bayes); it starts at one."""

    name = "learned"
    learned = True

    per: str = "pattern"

    def __post_init__(self) -> None:
        choose("per", self.per, PER)

    @property
    def initial(self) -> float:
        return 0.0

    def log_density(self, log_scale: Tensor) -> Tensor:
        return 0.0 * log_scale  # zeros that still belong to the graph

    def sample(self, keys: Tensor) -> Tensor:
        raise ValueError("a learned scale has no prior and cannot be sampled: use one such as half-cauchy(1)")

    def _words(self) -> list[str]:
        return []


HYPERPRIORS: dict[str, type[Hyperprior]] = {kind.name: kind for kind in (HalfNormal, HalfCauchy, InverseGamma, Learned)}
_NUMBERS = {"half-normal": ("scale",), "half-cauchy": ("scale",), "inverse-gamma": ("a", "b"), "learned": ()}


def parse_hyperprior(text: str, prior: str) -> Hyperprior:
    """The hyperprior that `text` names inside the text of a prior, such as `half-cauchy(1,layer)`."""
    name, parenthesis, rest = text.strip().lower().replace("_", "-").partition("(")
    name = name.strip()
    if name not in HYPERPRIORS:
        raise ValueError(f"unknown hyperprior {text!r} in prior {prior!r}{nearest(name, HYPERPRIORS)}")
    kind, numbers = HYPERPRIORS[name], _NUMBERS[name]
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
        raise ValueError(f"hyperprior {text!r} does not have the form {form}, with {options} at its end where wanted")
    for argument, word in zip(numbers, words, strict=False):
        try:
            settings[argument] = float(word)
        except ValueError:
            raise ValueError(f"{argument} in hyperprior {text!r} must be a number, got {word!r}") from None
    return kind(**settings)


# Marsaglia and Tsang accept at least 95 in 100 proposals above shape one: 24 in a row fail once in 10^31.
_PROPOSALS = 24


def _log_gamma_draws(keys: Tensor, shape: float) -> Tensor:
    """Logarithms of Gamma(shape, 1) draws: Marsaglia and Tsang (2000) at shape + 1, boosted by `u^(1 / shape)`."""
    d = shape + 1.0 - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    accepted, values = [], []
    for proposal in range(_PROPOSALS):
        own = noise.fold(keys, proposal)
        x = noise.normal(own, 1).double()
        u = noise.uniform(own, 1, 1).double()  # element 0 is one of the two hashes behind the normal
        cube = (1.0 + c * x).clamp(min=0.0) ** 3
        log_cube = torch.log(cube)
        accepted.append((cube > 0.0) & (torch.log(u) < 0.5 * x * x + d - d * cube + d * log_cube))
        values.append(math.log(d) + log_cube)
    first = torch.stack(accepted).int().argmax(0, keepdim=True)
    boost = torch.log(noise.uniform(noise.fold(keys, _PROPOSALS), 1).double()) / shape
    return (torch.stack(values).gather(0, first)[0] + boost).to(torch.get_default_dtype())
