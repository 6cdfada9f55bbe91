"""The table of likelihoods, their text form in configuration files and on the command line, and their JSON form."""

# ruff: noqa: PLC0414 -- `__init__` exports what is imported here under its own name, for type checkers too

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesify.errors import choose
from bayesify.likelihoods.bernoulli import Bernoulli as Bernoulli
from bayesify.likelihoods.bernoulli import MultiLabel as MultiLabel
from bayesify.likelihoods.categorical import Categorical as Categorical
from bayesify.likelihoods.censored import Censored as Censored
from bayesify.likelihoods.gaussian import Gaussian as Gaussian
from bayesify.likelihoods.gaussian_logits import GaussianLogits as GaussianLogits
from bayesify.likelihoods.laplace import Laplace as Laplace
from bayesify.likelihoods.likelihood import Likelihood
from bayesify.likelihoods.log_normal import LogNormal as LogNormal
from bayesify.likelihoods.mixture import Mixture as Mixture
from bayesify.likelihoods.negative_binomial import NegativeBinomial as NegativeBinomial
from bayesify.likelihoods.ordinal import Ordinal as Ordinal
from bayesify.likelihoods.poisson import Poisson as Poisson
from bayesify.likelihoods.quantile import Quantile as Quantile
from bayesify.likelihoods.several import Several
from bayesify.likelihoods.student_t import StudentT as StudentT
from bayesify.priors.text import comma_separated

if TYPE_CHECKING:
    from collections.abc import Mapping

# Every likelihood by its name. The text form, the names in `bf.likelihoods` and recipes are derived from this table.
LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind
    for kind in (
        Categorical,
        Bernoulli,
        MultiLabel,
        Ordinal,
        Gaussian,
        Laplace,
        StudentT,
        LogNormal,
        Mixture,
        Quantile,
        Censored,
        Poisson,
        NegativeBinomial,
        GaussianLogits,
    )
}


def from_spec(spec: Mapping[str, Any]) -> Likelihood:
    """The likelihood that a description as plain JSON names; the inverse of `likelihood.spec()`.

    Args:
        spec: `name` and the constructor's arguments.

    Returns:
        The likelihood.

    Raises:
        ValueError: if the name is unknown or the arguments do not fit it.

    Examples:
        >>> bf.likelihoods.from_spec({"name": "gaussian", "noise": 0.5})
        Gaussian(noise=0.5)

    """
    settings = dict(spec)
    if settings.get("name") == Several.name:
        del settings["name"]
        return Several(**settings)
    name = choose("likelihood", settings.pop("name", None), LIKELIHOODS)
    try:
        return LIKELIHOODS[name](**settings)
    except TypeError as error:
        raise ValueError(f"likelihood {name} cannot be made from {settings}: {error}") from error


def parse(text: str) -> Likelihood:
    """The likelihood that a text names.

    Args:
        text: a name and its options, such as `categorical`, `categorical:balanced`, `gaussian:learned`,
            `gaussian:half-cauchy(1)`, `student-t:4`, `log-normal`, `quantile:0.05,0.5,0.95`, `mixture:3`,
            `censored:0,none` or `gaussian-logits:expected,100`.

    Returns:
        The likelihood.

    Raises:
        ValueError: if the name is unknown or the options do not fit it.

    Examples:
        >>> bf.likelihoods.parse("gaussian-logits:expected,100")
        GaussianLogits(objective='expected', samples=100)

    """
    kind = likelihood_class(text)
    rest = _normalised(text).partition(":")[2]
    words = comma_separated(rest) if rest else []
    return from_spec({"name": kind.name, **kind.from_words([_value(word) for word in words])})


def likelihood_class(text: str) -> type[Likelihood]:
    """The class that a text such as `gaussian:learned` names, whatever its options."""
    name = _normalised(text).partition(":")[0]
    return LIKELIHOODS[choose("likelihood", name, LIKELIHOODS)]


def spec_text(spec: Mapping[str, Any]) -> str | None:
    """The text form of a description as plain JSON, without what workflows take from the data; None without a name."""
    name = spec.get("name")
    if name not in LIKELIHOODS:
        return name
    words = LIKELIHOODS[name].to_words(dict(spec))
    return f"{name}:{','.join(words)}" if words else name


def _normalised(text: str) -> str:
    return text.strip().lower().replace("_", "-")


def _value(word: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word.replace("-", "_")
