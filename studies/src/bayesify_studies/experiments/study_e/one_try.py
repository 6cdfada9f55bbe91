"""A fixed scale with one network, as a hyperprior has; and the study's best priors at the noise of the table.

The tuned scale of the page is the best of several networks on validation data, a hyperprior has a single one. Here the
scale is fixed at one number beforehand, so that both have the same number of tries.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, signed
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e.hyperprior_cells import FAMILIES, HYPERPRIORS, measure_cell
from bayesify_studies.experiments.study_e.hyperprior_comparison import WAYS, Place, part_name
from bayesify_studies.experiments.study_e.hyperprior_lines import PUBLISHED
from bayesify_studies.experiments.study_e.hyperprior_pictures import surface_picture

WAY = "warm"
SURFACES = (
    "The study's best priors, first seed: probability of class 0 (left) and its standard deviation over draws (right)."
)


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """A fleet over the seeds for each data set and family, with the KL warmed up."""
    settings = work.settings | {"scales": [work["one_try"]["scale"]]}
    return {
        f"one-try-{name}-{noise:g}-{family}": (measure_cell, name, noise, family, "fixed", work["warm_up"], settings)
        for name, noise in work["one_try"]["places"]
        for family in FAMILIES
    }


def tell(work: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The gaps of one network each, seed by seed, beside those of the tuned scale."""
    places = [(name, noise) for name, noise in work["one_try"]["places"]]
    tuned, fixed, hyper = ({place: _mean(rows(place)) for place in places} for rows in _gaps(found, numbers["gap"]))
    pooled = {
        what: paired(_mean([one[place] for place in places]), _mean([hyper[place] for place in places]))
        for what, one in (("fixed", fixed), ("tuned", tuned))
    }
    scale = f"{work['one_try']['scale']:g}"
    word = {
        1: "a hyperprior is better",
        -1: "a hyperprior is worse",
        0: "there is no significant difference",
    }
    where = " and ".join(f"{name} {noise:g}" for name, noise in places)
    line = Line(
        f"hyperprior minus a scale fixed at {scale}, one network each, {WAYS[WAY]}, {where}",
        "not done",
        f"{signed(pooled['fixed'], '.2f', ' points', 100)} of accuracy, {between(pooled['fixed'], '+.2f', 100)}; "
        f"minus the tuned scale (best of {len(work['scales'])} networks): "
        f"{signed(pooled['tuned'], '.2f', ' points', 100)}",
        f"with the same number of tries, {word[settled(pooled['fixed'])]}",
    )
    rows = [
        [f"{name} {noise:g}", *(percent(estimate(one[name, noise])) for one in (fixed, hyper, tuned))]
        for name, noise in places
    ]
    headings = ["", f"scale {scale}, one network", "hyperprior, one network", f"best of {len(work['scales'])} scales"]
    note = (
        "Gap to the Bayes-optimal accuracy, with the KL warm-up. Numbers are means over the three families of priors. "
        "The column `hyperprior, one network` is a mean over the three hyperpriors too."
    )
    gaps = {
        what: {f"{name}-{noise:g}": estimate(one[name, noise]) for name, noise in places}
        for what, one in (("fixed", fixed), ("hyperprior", hyper), ("tuned", tuned))
    }
    return Added(
        {"less": pooled, "gap": gaps},
        lines=[line],
        tables=[Table("The same number of tries", headings, rows, note)],
    )


def _gaps(found: Mapping[str, Any], published: Mapping[str, Any]) -> Any:
    """Three functions: the gaps of a data set by seed, for every tuned scale, fixed scale and hyperprior."""

    def of(place: Place, scale: str) -> list[list[float]]:
        return [published[part_name(WAY, place, (family, scale))]["accuracy"]["values"] for family in FAMILIES]

    def fixed(place: Place) -> list[list[float]]:
        every = [found[f"one-try-{place[0]}-{place[1]:g}-{family}"] for family in FAMILIES]
        return [[one["best_accuracy"] - value for value in one["accuracy"][0]] for one in every]

    return (
        lambda place: of(place, "fixed"),
        fixed,
        lambda place: [row for scale in HYPERPRIORS for row in of(place, scale)],
    )


def _mean(rows: Any) -> list[float]:
    return [fmean(column) for column in zip(*rows, strict=True)]


def surface_parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """The study's best prior of each data set, first seed, at the noise of the lines on the page."""
    settings = work.settings | {"seeds": 1}
    return {
        f"surface-{name}-{noise:g}": (measure_cell, name, noise, *PUBLISHED[name][:2], work["warm_up"], settings)
        for name, levels in work["noise"].items()
        for noise in [table_noise(levels)]
    }


def table_noise(levels: Any) -> float:
    """The noise level at which the page compares the study's best priors: the middle one."""
    return float(sorted(levels)[len(levels) // 2])


def tell_surfaces(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """The picture."""
    shown = {
        f"{name} {noise:g}: {', '.join(PUBLISHED[name][:2])}": found[f"surface-{name}-{noise:g}"]["surface"]
        for name, levels in work["noise"].items()
        for noise in [table_noise(levels)]
    }
    return Added({}, pictures=[Picture(work.figure("surfaces", surface_picture(shown)), SURFACES)])


ONE_TRY = Addition("one_try", parts, tell)
AT_THE_TABLES_NOISE = Addition("surfaces", surface_parts, tell_surfaces)
