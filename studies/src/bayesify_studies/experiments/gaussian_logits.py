"""Study A's Gaussian logits: why a thousand sampled logits collapse to one point, when they do not, what they then say.

The factorial of network, optimiser and head on clean labels, and both networks with Adam where labels of 1 and 7 are
swapped. The seeds of a cell are trained at once, as members of an ensemble that are scored one by one. The full preset
takes 36 such cells of 5 epochs, each of which compiles its step.
"""

from __future__ import annotations

from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_a import dense_after
from bayesify_studies.experiments.study_a import logits_page as page
from bayesify_studies.experiments.study_a import logits_pictures as pictures
from bayesify_studies.experiments.study_a.logits_cells import (
    COVERAGES,
    HEADS,
    NETWORKS,
    OPTIMISERS,
    Cell,
    name_of,
    timed,
    trained_cell,
)


def run(work: Work) -> Findings:
    clean = [(d, n, o, h, 0.0) for d in work["data"] for n in NETWORKS for o in OPTIMISERS for h in HEADS]
    swapped = [("mnist", n, "adam", h, s) for s in work["swaps"] for n in NETWORKS for h in HEADS]
    cells: list[Cell] = clean + swapped
    parts = work.every({name_of(cell): (trained_cell, work, *cell) for cell in cells})
    found = {cell: parts[name_of(cell)] for cell in cells}
    times = work.once("times", timed, work)
    return Findings(
        answer=page.answer(found, work["swaps"]),
        lines=[
            *page.accuracies(found),
            *page.claim(found),
            *page.spreads(found, work["swaps"]),
            *page.coverage(found, work["swaps"]),
            *page.seconds(times, work["samples"]),
        ],
        numbers={"cells": {name_of(cell): page.summary(part) for cell, part in found.items()}, "times": times},
        tables=[page.table("Clean labels", clean, found), page.table("Labels of 1 and 7 swapped", swapped, found)],
        pictures=[
            Picture(work.figure("why", pictures.why()), pictures.WHY),
            Picture(work.figure("spread", pictures.spreads(found, work["swaps"])), pictures.SPREADS),
            Picture(work.figure("coverage", pictures.coverage(found, COVERAGES)), pictures.COVERAGE),
        ],
        shortfalls=page.shortfalls(found, times, work["swaps"]),
    )


EXPERIMENT = Experiment(
    name="gaussian-logits",
    title="Gaussian logits: why they collapse, and when they do not",
    study="A",
    question="Does it help to sample a thousand logits from learned Gaussians, and what does their spread mean?",
    run=run,
    additions=(dense_after.ADDITION,),
    quick={
        "data": ["mnist", "cifar10"],
        "swaps": [0.3],
        "seeds": 2,
        "examples": 2000,
        "test": 1000,
        "epochs": 3,
        "batch_size": 32,
        "samples": 50,
        "compiled": False,
        "dense_after": {
            "swaps": [0.3],
            "seeds": 2,
            "examples": 1000,
            "test": 500,
            "epochs": 2,
            "batch_size": 32,
            "samples": 20,
        },
    },
    full={
        "data": ["mnist", "cifar10"],
        "swaps": [0.1, 0.3],
        "seeds": 5,
        "examples": None,
        "test": None,
        "epochs": 5,
        "batch_size": 32,
        "samples": 1000,
        "compiled": True,
        "dense_after": {
            "swaps": [0.0, 0.3],
            "seeds": 3,
            "examples": 10_000,
            "test": 10_000,
            "epochs": 5,
            "batch_size": 32,
            "samples": 100,
        },
    },
)
