"""What the page on distances from HMC says of the ELBO of each solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, paired, settled, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c.elbo_of_solutions import ANNEALED, MEAN_FIELD, WARMED, parts, summary


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The table of all data sets, and a sentence on each; a data set whose parts are not there keeps its numbers."""
    results = {}
    for data in work["elbo"]:
        own = [found.get(f"elbo-{data}-{seed}") for seed in work.seeds]
        if None not in own:
            results[data] = summary([part for part in own if part is not None])
        elif data in numbers.get("elbo", {}):
            results[data] = _with_distances(numbers["elbo"][data], numbers.get("data", {}).get(data, {"rows": []}))
    return Added(
        results,
        lines=[line for data, one in results.items() for line in _lines(data, one)],
        tables=[table(results)] if results else [],
        shortfalls=[f"{data}: {said(one)}" for data, one in results.items()],
    )


def _with_distances(results: Mapping[str, Any], compared: Mapping[str, Any]) -> dict[str, Any]:
    """Early ELBOs have no distances: for the methods that are compared with HMC, those of the comparison."""
    far = {row["label"]: row["scores"]["total_variation"] for row in compared["rows"]}
    return {
        label: {**one, "total_variation": far[label]} if label in far else dict(one) for label, one in results.items()
    }


def _lines(data: str, results: Mapping[str, Any]) -> list[Line]:
    """The annealed family beside mean-field VI, where its distance is known."""
    annealed, own = results[ANNEALED], results[MEAN_FIELD]
    apart = _distance(annealed, own)
    if not apart:
        return []
    word = {-1: "nearer to HMC", 1: "farther from HMC", 0: "not significantly nearer to HMC"}[settled(apart)]
    return [
        Line(
            f"{data}: total variation to HMC, the annealed family (a richer posterior family) and mean-field VI",
            "not measured",
            f"{_tv(annealed)} and {_tv(own)}",
            f"the annealed family is {word}: paired difference {apart['mean']:+.4f} ({between(apart)})",
        )
    ]


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each data set and solution: minus the ELBO, the distance from HMC and the accuracy."""
    rows = [
        [
            f"{data}: {label}",
            written(one["elbo"], ".1f", times=-1.0).replace("± -", "± "),
            written(one["total_variation"], ".4f") if "total_variation" in one else "–",
            written(one["accuracy"], ".1f", "%", 100.0) if "accuracy" in one else "–",
            "–" if label == MEAN_FIELD else f"{one['less_mean_field']['mean']:+.1f}, {_word(one['less_mean_field'])}",
        ]
        for data, results in found.items()
        for label, one in results.items()
    ]
    headings = [
        "solution",
        "minus the ELBO, nats",
        "TV to HMC",
        "test accuracy",
        "ELBO minus that of mean-field VI",
    ]
    return Table(
        "Which solution has the higher ELBO",
        headings,
        rows,
        "The ELBO of all training examples, with the full KL. In the second and third column, lower is better. A "
        "constant answer is the same prediction for every input. No network that ignores its input can have a higher "
        "ELBO than the log-likelihood of this answer. The annealed family is a richer posterior family for "
        "the same model. HMC was sampled again for this table, with the same settings.",
    )


def said(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the objective prefers what mean-field VI found, in words that follow the intervals."""
    other, annealed, own = results[WARMED], results[ANNEALED], results[MEAN_FIELD]
    fits = f"a mean-field network found with KL warm-up (accuracy {written(other['accuracy'], '.1f', '%', 100.0)})"
    apart = f"{abs(other['less_mean_field']['mean']):.1f} nats"
    told = {
        -1: f"The ELBO prefers the solution that mean-field VI found. {fits[0].upper()}{fits[1:]} has an ELBO that is "
        f"{apart} lower.",
        1: f"Training of mean-field VI did not find the optimum: the ELBO of {fits} is higher by {apart}.",
        0: f"It is not known whether mean-field VI found its optimum: the ELBO of {fits} is not significantly "
        f"different ({apart}).",
    }[settled(other["less_mean_field"])]
    nearer = settled(_distance(other, own))
    if nearer:
        word = "nearer to HMC" if nearer < 0 else "farther from HMC"
        told += f" That network is {word} (total variation {_tv(other)} and {_tv(own)})."
    if settled(annealed["less_mean_field"]) == 1:
        gain = annealed["less_mean_field"]["mean"]
        far = f" and its total variation {_tv(annealed)}" if "total_variation" in annealed else ""
        told += (
            f" The annealed family, which is richer, reaches an ELBO that is {gain:.1f} nats higher than mean-field "
            f"VI's. Its accuracy is {written(annealed['accuracy'], '.1f', '%', 100.0)}{far}."
        )
    return told


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    if "total_variation" not in one or "total_variation" not in other:
        return {}  # early results have no distances
    return paired(one["total_variation"]["values"], other["total_variation"]["values"])


def _tv(one: Mapping[str, Any]) -> str:
    return written(one["total_variation"], ".4f")


def _word(difference: dict[str, Any]) -> str:
    return {1: "better", -1: "worse", 0: "not significant"}[settled(difference)]


ADDITION = Addition("elbo", parts, tell, whole=False)
