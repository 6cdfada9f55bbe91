"""What remains of a page's comparisons after a correction for their number (Holm), from the numbers of its JSON.

Every experiment that compares has its comparisons listed here: all of a page are one family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import paired, settled, settled_by_holm
from bayesify_studies.experiments.study_d.words import IN_WORDS

Numbers = Mapping[str, Any]
Differences = dict[str, dict[str, Any]]
# More names than this are not listed: the page's tables have them.
_LISTED = 12
TITLE = "After correction for the number of comparisons"


def differences(results: Mapping[str, Any]) -> Differences:
    """The comparisons of a page by name; none where it makes none, or its numbers lack them."""
    gather = FAMILIES.get(results["name"])
    try:
        return {} if gather is None else gather(results["numbers"])
    except KeyError:
        return {}


def told(results: Mapping[str, Any]) -> str:
    """How many comparisons are significant one by one and after the correction, and which; nothing for fewer than two.

    Words are those of the numbers: a difference is "higher" or "lower" than zero.
    """
    found = {name: one for name, one in differences(results).items() if len(one["values"]) > 1}
    if len(found) < 2:
        return ""
    alone = [settled(one) for one in found.values()]
    signs = settled_by_holm(list(found.values()))
    count, kept = len(found) - alone.count(0), len(found) - signs.count(0)
    said = f"This page makes {len(found)} comparisons over seeds. Without a correction, {count} are "
    said += "significant. After Holm's "
    said += f"correction, {kept} {'is' if kept == 1 else 'are'}"
    names = [f"{name} ({'+' if sign > 0 else '-'})" for name, sign in zip(found, signs, strict=True) if sign]
    if 0 < kept <= _LISTED:
        return f"{said}. They are listed with the sign of the difference in brackets: {'; '.join(names)}."
    return f"{said}."


def _named(key: str, words: str = "") -> Callable[[Numbers], Differences]:
    """All differences under a key; a name is `words` with the name in the JSON."""
    return lambda numbers: {f"{words}{name.replace('_', ', ')}": one for name, one in numbers[key].items()}


def _over_seeds(numbers: Numbers) -> Differences:
    kinds = {"plain": "plain network", "dropout": "dropout", "gaussian": "N(0, 1)"}
    return {
        f"scale mixture minus {kinds[kind]} with {units} units": one["over_seeds"]
        for name, one in numbers["mixture_less"].items()
        for kind, _, units in [name.partition("-")]
    }


def _lora(numbers: Numbers) -> Differences:
    words = {"with_head": "Bayesian LoRA and head"}
    found = {}
    for name, one in numbers["exact_less"].items():
        other, score = name.rsplit(" ", 1)
        found[f"Bayesian LoRA minus {words.get(other, other.replace('_', ' '))}, {score}"] = one
    return found


def _reweighting(numbers: Numbers) -> Differences:
    return {f"test error {IN_WORDS[way]}": one for way, one in numbers["gain"].items()} | {
        f"absolute skewness {IN_WORDS[way]}": one for way, one in numbers["change_of_absolute_skewness"].items()
    }


def _priors(numbers: Numbers) -> Differences:
    mixtures = {"half": "(1/2, 1, e^-6)", "quarter": "(1/4, 1, e^-6)", "wide": "(3/4, 1, e^-8)"}
    return {
        f"mixture {mixtures[prior]} minus N(0, 1), {IN_WORDS[way]}": one
        for name, one in numbers["less_gaussian"].items()
        for way, _, prior in [name.partition("_")]
    }


def _hyperpriors(numbers: Numbers) -> Differences:
    words = {"plain": "full KL", "warm": "KL warm-up"}
    return {f"{words[way]}, {name}": one for way in words for name, one in numbers["advantage"][way]["single"].items()}


def pruning_rules(numbers: Numbers) -> Differences:
    """Signal-to-noise minus magnitude at every share from a half on, in every network."""
    errors, found = numbers["errors"], {}
    for name, snr in errors.items():
        if name.endswith("| snr"):
            network = name.removesuffix(" | snr")
            for share in ("0.5", "0.75", "0.9", "0.95", "0.98"):
                other = errors[f"{network} | magnitude"][share]
                found[f"{network.replace(' | ', ', ')} units at {100 * float(share):g}%"] = paired(
                    snr[share]["values"], other["values"]
                )
    return found


FAMILIES: dict[str, Callable[[Numbers], Differences]] = {
    "fashion-table": _over_seeds,
    "hyperpriors": _hyperpriors,
    "kl-reweighting": _reweighting,
    "lora": _lora,
    "mnist-table": _over_seeds,
    "mushroom": _named("variational_less", "Thompson sampling minus "),
    "normalisation": _named("less_others", "pixels / 126 minus "),
    "priors": _priors,
    "pruning": pruning_rules,
    "transfer": _named("discounted_less", "discounted minus "),
    "unseen-class": _named("variational_less_dropout", "variational minus MC dropout, "),
}
