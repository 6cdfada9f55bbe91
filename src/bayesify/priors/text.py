"""The table of priors, and their text form in configuration files and on the command line.

prior    = name [":" number {"," number}]        normal:1   student-t:3,1   normal:fan_in   flat   pretrained:0.03
         | "posterior:" run folder ["," prior]   posterior:runs/monday   posterior:runs/monday,normal:1
scale    = number | "fan_in" | hyperprior        laplace:inverse-gamma(1,1)   cauchy:half-cauchy(1)   normal:learned
mapping  = pattern "=" prior {";" pattern "=" prior}       *.bias=normal:10;*=normal:1
"""

# ruff: noqa: PLC0414 -- `__init__` exports what is imported here under its own name, for type checkers too

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from bayesify.errors import nearest
from bayesify.priors.arguments import argument_fields
from bayesify.priors.densities import Cauchy as Cauchy
from bayesify.priors.densities import Laplace as Laplace
from bayesify.priors.densities import Normal as Normal
from bayesify.priors.densities import ScaleMixture as ScaleMixture
from bayesify.priors.densities import StudentT as StudentT
from bayesify.priors.hyperpriors import Hyperprior, parse_hyperprior
from bayesify.priors.improper import Flat as Flat
from bayesify.priors.improper import LogUniform as LogUniform
from bayesify.priors.posterior import Posterior as Posterior
from bayesify.priors.pretrained import Pretrained as Pretrained
from bayesify.priors.prior import Prior

if TYPE_CHECKING:
    from collections.abc import Mapping

# Every prior by its name. The text form and the names in `bf.priors` are derived from this table.
PRIORS: dict[str, type[Prior]] = {
    kind.name: kind
    for kind in (
        Normal,
        Laplace,
        Cauchy,
        StudentT,
        ScaleMixture,
        Flat,
        LogUniform,
        Posterior,
        Pretrained,
    )
}


def parse(text: str) -> Prior:
    """The prior that `text` names; the inverse of `prior.text`.

    Args:
        text: a name and its numbers, such as `normal:1`, `student-t:3,1`, `normal:fan_in`, `laplace:half-cauchy(1)`,
            `pretrained:0.03` or `posterior:FOLDER`.

    Returns:
        The prior.

    Raises:
        ValueError: if the name is unknown or the numbers do not fit it.

    Examples:
        >>> bf.priors.parse("student-t:3,0.5")
        StudentT(df=3.0, scale=0.5, mean=0.0)

    """
    if not isinstance(text, str):
        raise TypeError(f"a prior's text must be a string such as 'normal:1', got {text!r}")
    name, colon, rest = text.strip().partition(":")
    name = name.strip().lower().replace("_", "-")
    if name not in PRIORS:
        raise ValueError(f"unknown prior {text!r}{nearest(name, PRIORS)}")
    kind = PRIORS[name]
    if issubclass(kind, Posterior):
        return kind.read(rest)
    words = comma_separated(rest) if colon else []
    arguments = argument_fields(kind)
    required = sum(argument.default is dataclasses.MISSING for argument in arguments)
    names = [argument.name for argument in arguments]
    if not required <= len(words) <= len(names) or "" in words:
        form = f"{kind.name}:{','.join(names)}" if names else kind.name
        raise ValueError(f"prior {text!r} does not have the form {form}")
    given = {name: _argument(name, word, text) for name, word in zip(names, words, strict=False)}
    try:
        return kind(**given)
    except ValueError as problem:
        raise ValueError(f"{problem}, in prior {text!r}") from None


def parse_mapping(text: str) -> dict[str, Prior]:
    """Name patterns and their priors, in order; the inverse of `mapping_text`.

    Args:
        text: `pattern=prior` pairs, separated by semicolons; a prior alone is for all weights, `*`.

    Returns:
        A dict from patterns to priors.

    Raises:
        ValueError: if a pair has no pattern or no prior, or a pattern appears twice.

    Examples:
        >>> bf.priors.parse_mapping("*.bias=normal:10;*=laplace:1")
        {'*.bias': Normal(scale=10.0, mean=0.0), '*': Laplace(scale=1.0, mean=0.0)}

    """
    if not isinstance(text, str) or "=" not in text:
        return {"*": parse(text)}
    mapping: dict[str, Prior] = {}
    for pair in filter(None, (pair.strip() for pair in text.split(";"))):
        pattern, equals, prior = (word.strip() for word in pair.partition("="))
        if not equals or not pattern:
            raise ValueError(f"expected pattern=prior in {text!r}, got {pair!r}")
        if pattern in mapping:
            raise ValueError(f"pattern {pattern!r} is given twice in {text!r}")
        mapping[pattern] = parse(prior)
    return mapping


def mapping_text(mapping: Mapping[str, Prior]) -> str:
    """The text form of a mapping from name patterns to priors; the inverse of `parse_mapping`.

    Args:
        mapping: priors by name pattern, in order.

    Returns:
        `pattern=prior` pairs, separated by semicolons; the prior alone if the only pattern is `*`.

    Raises:
        ValueError: if a pattern contains `=`, `;` or blanks at its ends.

    Examples:
        >>> bf.priors.mapping_text({"*.bias": bf.priors.Normal(10), "*": bf.priors.Laplace(1)})
        '*.bias=normal:10;*=laplace:1'

    """
    for pattern in mapping:
        if not pattern or pattern != pattern.strip() or set("=;") & set(pattern):
            raise ValueError(f"a name pattern must not contain '=', ';' or blanks at its ends, got {pattern!r}")
    if list(mapping) == ["*"]:
        return mapping["*"].text
    return ";".join(f"{pattern}={prior.text}" for pattern, prior in mapping.items())


def comma_separated(text: str) -> list[str]:
    """The words between the commas of a text, except commas inside parentheses."""
    return [word.strip() for word in re.split(r",(?![^(]*\))", text)]


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
