"""Likelihoods by name: as text, the same in configuration files and on the command line, and as plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesify.errors import choose
from bayesify.likelihoods.classification import Bernoulli, Categorical
from bayesify.likelihoods.gaussian import Gaussian
from bayesify.likelihoods.gaussian_logits import GaussianLogits
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.poisson import Poisson

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_NAME: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Categorical, Bernoulli, Gaussian, Poisson, GaussianLogits)
}
_TEXT_OPTIONS: dict[str, tuple[str, ...]] = {
    "categorical": ("classes",),
    "bernoulli": (),
    "gaussian": ("noise", "initial", "location", "scale"),
    "poisson": (),
    "gaussian-logits": ("objective", "samples"),
}


def from_spec(spec: Mapping[str, Any]) -> Likelihood:
    """The likelihood that `spec()` described."""
    settings = dict(spec)
    name = choose("likelihood", settings.pop("name", None), _BY_NAME)
    try:
        return _BY_NAME[name](**settings)
    except TypeError as error:
        raise ValueError(f"likelihood {name} cannot be made from {settings}: {error}") from error


def parse(text: str) -> Likelihood:
    """The likelihood that a text names: `categorical`, `gaussian:learned`, `gaussian-logits:expected,100`."""
    name, _, rest = text.strip().lower().replace("_", "-").partition(":")
    choose("likelihood", name, _BY_NAME)
    words = [word.strip() for word in rest.split(",")] if rest else []
    options = _TEXT_OPTIONS[name]
    if len(words) > len(options):
        allowed = ", ".join(options) or "no options"
        raise ValueError(f"likelihood {name} takes {allowed}, got {rest!r}")
    return from_spec({"name": name, **{option: _value(word) for option, word in zip(options, words, strict=False)}})


def _value(word: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word.replace("-", "_")
