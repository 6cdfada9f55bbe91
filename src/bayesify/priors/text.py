"""Priors as text, the same in configuration files and on the command line.

prior    = name [":" number {"," number}]        normal:1   student-t:3,1   normal:fan_in   flat
         | "posterior:" run folder ["," prior]   posterior:runs/monday   posterior:runs/monday,normal:1
scale    = number | "fan_in" | hyperprior        laplace:inverse-gamma(1,1)   cauchy:half-cauchy(1)   normal:learned
mapping  = pattern "=" prior {";" pattern "=" prior}       *.bias=normal:10;*=normal:1
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bayesify.errors import nearest
from bayesify.priors.densities import Cauchy, Laplace, Normal, ScaleMixture, StudentT
from bayesify.priors.hyperpriors import Hyperprior, parse_hyperprior
from bayesify.priors.improper import Flat, LogUniform
from bayesify.priors.posterior import Posterior
from bayesify.priors.prior import Prior, argument_names

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: dict[str, type[Prior]] = {
    kind.name: kind for kind in (Normal, Laplace, Cauchy, StudentT, ScaleMixture, Flat, LogUniform, Posterior)
}


def parse(text: str) -> Prior:
    """The prior that `text` names; the inverse of `prior.text`."""
    if not isinstance(text, str):
        raise TypeError(f"a prior's text must be a string such as 'normal:1', got {text!r}")
    name, colon, rest = text.strip().partition(":")
    kind = _kind(name.strip().lower().replace("_", "-"), text)
    if kind is Posterior:
        return Posterior.read(rest)
    words = [word.strip() for word in _COMMAS.split(rest)] if colon else []
    names = argument_names(kind)
    if len(words) > len(names) or (kind is ScaleMixture and len(words) < 3) or "" in words:
        form = f"{kind.name}:{','.join(names)}" if names else kind.name
        raise ValueError(f"prior {text!r} does not have the form {form}")
    return kind(**{name: _argument(name, word, text) for name, word in zip(names, words, strict=False)})


def parse_mapping(text: str) -> dict[str, Prior]:
    """Name patterns and their priors, in order; a prior alone stands for every weight, `*`."""
    if not isinstance(text, str) or "=" not in text:
        return {"*": parse(text)}
    mapping: dict[str, Prior] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pattern, equals, prior = (word.strip() for word in part.partition("="))
        if not equals or not pattern:
            raise ValueError(f"expected pattern=prior in {text!r}, got {part!r}")
        if pattern in mapping:
            raise ValueError(f"pattern {pattern!r} is given twice in {text!r}")
        mapping[pattern] = parse(prior)
    return mapping


def mapping_text(mapping: Mapping[str, Prior]) -> str:
    """The inverse of `parse_mapping`."""
    for pattern in mapping:
        if not pattern or pattern != pattern.strip() or set("=;") & set(pattern):
            raise ValueError(f"a name pattern holds no '=', no ';' and no outer blanks, got {pattern!r}")
    if list(mapping) == ["*"]:
        return mapping["*"].text
    return ";".join(f"{pattern}={prior.text}" for pattern, prior in mapping.items())


def _kind(name: str, text: str) -> type[Prior]:
    if name not in KINDS:
        raise ValueError(f"unknown prior {text!r}{nearest(name, KINDS)}")
    return KINDS[name]


# Commas inside a hyperprior's parentheses are its own.
_COMMAS = re.compile(r",(?![^(]*\))")


def _argument(name: str, word: str, text: str) -> float | str | Hyperprior:
    if name == "scale":
        if word.lower().replace("-", "_") == "fan_in":
            return "fan_in"
        if "(" in word or re.fullmatch(r"(half|inverse|learn)[a-z_-]*", word.lower()):
            return parse_hyperprior(word, text)
    try:
        return float(word)
    except ValueError:
        expected = "a number, fan_in or a hyperprior such as half-cauchy(1)" if name == "scale" else "a number"
        raise ValueError(f"{name} in prior {text!r} must be {expected}, got {word!r}") from None
