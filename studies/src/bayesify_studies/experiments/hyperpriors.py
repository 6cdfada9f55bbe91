"""Study E's priors and hyperpriors: 13 cells on moons and circles at three noise levels, scored against the densities.

    gap = accuracy of the Bayes-optimal rule - accuracy of the network,   both integrals over the plane

The fixed scale is chosen on the 300 validation points from a logarithmic grid; nothing is chosen for a hyperprior. A
cell is trained twice: with the whole KL from the first step, as ADVI is usually run, and with the KL warmed up, because
a mean-field network can fall into the solution in which no weight says anything and not come out again.

The full preset trains 6,000 networks of 57 weights: about two hours on one core, ten minutes with `--jobs 16`.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, signed
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e import as_many_tries, hyperprior_elbo
from bayesify_studies.experiments.study_e.hyperprior_cells import FAMILIES, HYPERPRIORS, cells, measure_hmc
from bayesify_studies.experiments.study_e.hyperprior_comparison import WAYS, Cells, advantages, part_name
from bayesify_studies.experiments.study_e.hyperprior_lines import AGREEING, answer, statements
from bayesify_studies.experiments.study_e.hyperprior_pictures import (
    advantage_picture,
    gap_picture,
    last_layer_picture,
)
from bayesify_studies.experiments.study_e.one_try import AT_THE_TABLES_NOISE, ONE_TRY


def run(work: Work) -> Findings:
    found = Cells(work)
    numbers = {way: advantages(found, way) for way in WAYS}
    hmc = _against_hmc(work, found)
    return Findings(
        answer=answer(numbers),
        lines=statements(found, numbers, hmc, [name for name, levels in work["noise"].items() if len(levels) > 1]),
        numbers={"advantage": numbers, "hmc": hmc, "gap": _all_gaps(found)},
        tables=[*(_table(found, way) for way in WAYS), _comparisons(found)],
        pictures=list(_pictures(work, found)),
        shortfalls=_shortfalls(work, found, numbers, hmc),
    )


def _against_hmc(work: Work, found: Cells) -> dict[str, Any]:
    plan = work["hmc"]
    asked = {
        f"hmc-{name}-{noise:g}-{family}-{scale}-{seed}": ((name, noise), (family, scale), seed)
        for name, noise in plan["places"]
        for family, scale in plan["cells"]
        for seed in range(plan["seeds"])
    }
    parts = {}
    for key, (place, (family, scale), seed) in asked.items():
        part = found.part("warm", place, (family, scale))
        prior = part["priors"][found.chosen("warm", place, (family, scale))[seed]]
        parts[key] = (measure_hmc, *place, prior, seed, work.settings)
    told = work.every(parts)
    rows = []
    for key, (place, cell, seed) in asked.items():
        best = found.part("warm", place, cell)["best_accuracy"]
        lost = {way: found.gaps(way, place, cell)[seed] for way in WAYS}
        rows.append({"gap": best - told[key]["accuracy"], "r_hat": told[key]["r_hat"], "seed": seed, **lost})
    if not rows:
        return {}
    by_seed = {
        key: [fmean(row[key] for row in rows if row["seed"] == seed) for seed in range(plan["seeds"])]
        for key in ("gap", *WAYS)
    }
    return {
        "gap": estimate(by_seed["gap"]),
        **{way: paired(by_seed[way], by_seed["gap"]) for way in WAYS},
        "worst_r_hat": max(row["r_hat"] for row in rows),
        "runs": len(rows),
    }


def _all_gaps(found: Cells) -> dict[str, Any]:
    return {
        part_name(way, place, cell): {of: estimate(found.gaps(way, place, cell, of)) for of in ("accuracy", "nll")}
        for way in WAYS
        for place in found.places
        for cell in cells()
    }


def _table(found: Cells, way: str) -> Table:
    rows = [
        [f"{family}, {scale}", *(percent(estimate(found.gaps(way, place, (family, scale)))) for place in found.places)]
        for family, scale in cells()
    ]
    best = [100 * found.part(way, place, ("flat", "none"))["best_accuracy"] for place in found.places]
    return Table(
        f"Gap to the Bayes-optimal accuracy, {WAYS[way]}",
        ["prior, scale", *(f"{name} {noise:g}" for name, noise in found.places)],
        [*rows, ["best possible accuracy", *(f"{one:.2f}%" for one in best)]],
        "Points of accuracy, mean and standard error over seeds. A fixed scale is the tuned one: of the scales "
        "tried, it has the lowest validation NLL.",
    )


def _comparisons(found: Cells) -> Table:
    rows = []
    for place in found.places:
        for family in FAMILIES:
            row = [f"{place[0]} {place[1]:g}, {family}"]
            for way in WAYS:
                for hyper in HYPERPRIORS:
                    one = estimate(found.advantage(way, [place], (family,), [hyper]))
                    mark = {1: " better", -1: " worse", 0: ""}[settled(one)]
                    row.append(signed(one, ".2f", "", 100) + mark)
            rows.append(row)
    return Table(
        "Advantage of each hyperprior over the tuned scale",
        ["", *(f"{hyper}, {said}" for said in ("full KL", "KL warm-up") for hyper in HYPERPRIORS)],
        rows,
        "Points of accuracy, paired over seeds. Better and worse mark 95% intervals that exclude zero. About one "
        "comparison of equal methods in twenty is marked by chance.",
    )


def _pictures(work: Work, found: Cells) -> Iterator[Picture]:
    advantages = {
        way: {place: estimate(found.advantage(way, [place], FAMILIES, list(HYPERPRIORS))) for place in found.places}
        for way in WAYS
    }
    yield Picture(
        work.figure("advantage", advantage_picture(advantages, WAYS)),
        "How much a hyperprior gains over the tuned scale, pooled over families and hyperpriors, with 95% intervals.",
    )
    gaps = {
        way: {place: {cell: estimate(found.gaps(way, place, cell)) for cell in cells()} for place in found.places}
        for way in WAYS
    }
    yield Picture(
        work.figure("gaps", gap_picture(gaps, WAYS)),
        "Gap to the best possible accuracy by prior and noise level, mean and standard error over the seeds.",
    )
    place = found.places[-1]
    layers = {
        family: found.part("warm", place, (family, "inverse-gamma"))["last_layer"] for family in ("laplace", "cauchy")
    }
    yield Picture(
        work.figure("last-layer", last_layer_picture(layers)),
        f"Posteriors of the ten last-layer weights on {place[0]}, noise {place[1]:g}, first seed. Solid lines have a "
        "mean more than two standard deviations from zero.",
    )


def _guessing(found: Cells) -> Iterator[str]:
    """Where networks learned nothing, which is then what is compared."""
    for way, words in WAYS.items():
        for name in dict(found.places):
            (lost, count), (fixed, of) = (found.guessing(way, name, one) for one in (tuple(HYPERPRIORS), ("fixed",)))
            if lost or fixed:
                yield (
                    f"{words[0].upper()}{words[1:]}, {name}: {lost} of {count} networks with a hyperprior and {fixed} "
                    f"of {of} with a tuned scale are no better than guessing. They dominate the means."
                )


def _shortfalls(work: Work, found: Cells, numbers: dict[str, Any], hmc: dict[str, Any]) -> list[str]:
    told = list(_guessing(found))
    told.append(
        f"A tuned scale is the best of {len(work['scales'])} networks on validation data; a hyperprior has only one. "
        "More networks help if training sometimes fails."
    )
    for way, words in WAYS.items():
        pooled = numbers[way]["pooled"]
        if settled(pooled) == 0:
            told.append(f"With the {words}, the difference is not significant: {between(pooled, '+.2f', 100)} points.")
    told.append(
        "KL warm-up was chosen after tests on circles with noise 0.15 and seeds 0 to 7. These runs are scored here too."
    )
    if len(work.seeds) < 20:
        told.append(f"{len(work.seeds)} seeds instead of 20.")
    if hmc and hmc["worst_r_hat"] > AGREEING:
        told.append(f"HMC did not converge everywhere: R-hat up to {hmc['worst_r_hat']:.2f}.")
    return told


EXPERIMENT = Experiment(
    name="hyperpriors",
    title="Priors and hyperpriors on noisy moons and circles",
    study="E",
    question="Is a hyperprior on the prior's scale almost always better than a tuned scale, especially on noisy data?",
    run=run,
    additions=(ONE_TRY, AT_THE_TABLES_NOISE, as_many_tries.ADDITION, hyperprior_elbo.ADDITION),
    quick={
        "seeds": 3,
        "noise": {"moons": [0.4], "circles": [0.15]},
        "scales": [0.3, 3.0],
        "epochs": 150,
        "warm_up": 75,
        "rate": 0.1,
        "draws": 1,
        "side": 40,
        "one_try": {"scale": 1.0, "places": [["moons", 0.4], ["circles", 0.15]]},
        "answers": 30,
        "hmc": {"places": [], "cells": [], "seeds": 0},
    },
    full={
        "seeds": 20,
        "noise": {"moons": [0.3, 0.4, 0.5], "circles": [0.1, 0.15, 0.2]},
        "scales": [0.1, 0.3, 1.0, 3.0, 10.0],
        "epochs": 1200,
        "warm_up": 600,
        "rate": 0.03,
        "draws": 2,
        "side": 80,
        "one_try": {"scale": 1.0, "places": [["moons", 0.4], ["circles", 0.15]]},
        "answers": 100,
        "hmc": {
            "places": [["moons", 0.4], ["circles", 0.15]],
            "cells": [["normal", "fixed"], ["normal", "inverse-gamma"], ["cauchy", "inverse-gamma"]],
            "seeds": 5,
            "chains": 8,
            "warm_up": 300,
            "samples": 300,
            "answers": 400,
        },
    },
)
