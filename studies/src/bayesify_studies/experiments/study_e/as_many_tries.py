"""A hyperprior with as many networks as the tuned scale has: starts instead of scales, the best one on validation.

The tuned scale of the page is the best of several networks on validation data. Part of its lead may be that one of
several networks escapes where a single one fails. Here a hyperprior gets as many networks, which differ in their start
only, and the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, signed
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e.hyperprior_cells import FAMILIES, measure_cell
from bayesify_studies.experiments.study_e.hyperprior_comparison import WAYS, part_name

NAME = "as_many_tries"
WAY, HYPER = "warm", "inverse-gamma"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A fleet over starts and seeds for each data set and family, with the KL warmed up."""
    settings = work.settings | {"tries": len(work["scales"])}
    return {
        f"tries-{name}-{noise:g}-{family}": (measure_cell, name, noise, family, HYPER, work["warm_up"], settings)
        for name, noise in work["one_try"]["places"]
        for family in FAMILIES
    }


def best_tries(part: Mapping[str, Any], tries: int) -> list[float]:
    """The gap to the best possible accuracy by seed, of the start with the lowest validation NLL among the first."""
    best = []
    for seed in range(len(part["accuracy"][0])):
        _, chosen = min((part["validation_nll"][start][seed], start) for start in range(tries))
        best.append(part["best_accuracy"] - part["accuracy"][chosen][seed])
    return best


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The gaps of the best of one and of as many starts, beside those of the tuned scale, seed by seed."""
    tries, scale = len(work["scales"]), "fixed"
    places = [(name, noise) for name, noise in work["one_try"]["places"]]
    gaps: dict[str, dict[Any, list[float]]] = {"single": {}, "hyperprior": {}, "tuned": {}}
    for place in places:
        own = [found[f"tries-{place[0]}-{place[1]:g}-{family}"] for family in FAMILIES]
        published = [
            numbers["gap"][part_name(WAY, place, (family, scale))]["accuracy"]["values"] for family in FAMILIES
        ]
        gaps["single"][place] = _mean([best_tries(one, 1) for one in own])
        gaps["hyperprior"][place] = _mean([best_tries(one, tries) for one in own])
        gaps["tuned"][place] = _mean(published)
    less = {
        what: paired(*(_mean(list(gaps[one].values())) for one in (what, "hyperprior"))) for what in ("tuned", "single")
    }
    word = {1: "a hyperprior is better", -1: "a hyperprior is worse", 0: "there is no significant difference"}
    where = " and ".join(f"{name} {noise:g}" for name, noise in places)
    line = Line(
        f"hyperprior minus tuned scale, each the best of {tries} networks on validation, {WAYS[WAY]}, {where}",
        "not done",
        f"{signed(less['tuned'], '.2f', ' points', 100)} of accuracy, {between(less['tuned'], '+.2f', 100)}; the best "
        f"of {tries} starts minus one start: {signed(less['single'], '.2f', ' points', 100)}",
        f"with the same number of tries, {word[settled(less['tuned'])]}",
    )
    rows = [
        [f"{name} {noise:g}", *(percent(estimate(gaps[one][name, noise])) for one in ("single", "hyperprior", "tuned"))]
        for name, noise in places
    ]
    return Added(
        {
            "less": less,
            "gap": {
                what: {f"{name}-{noise:g}": estimate(own[name, noise]) for name, noise in places}
                for what, own in gaps.items()
            },
        },
        lines=[line],
        tables=[
            Table(
                f"{tries} networks for the hyperprior and {tries} for the tuned scale",
                ["", f"{HYPER}, one start", f"{HYPER}, best of {tries} starts", f"best of {tries} scales"],
                rows,
                "Gap to the Bayes-optimal accuracy, with the KL warm-up. Mean over the three families of priors. The "
                "best is the one with the lowest validation NLL. Only two of the six data sets were used, and only one "
                "of the three hyperpriors: that of the study's best priors. The starts of a hyperprior differ only in "
                "their random numbers. Each scale has one start.",
            )
        ],
    )


def _mean(rows: list[list[float]]) -> list[float]:
    return [fmean(column) for column in zip(*rows, strict=True)]


ADDITION = Addition(NAME, parts, tell)
