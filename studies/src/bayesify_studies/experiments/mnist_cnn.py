"""Study E's convolutional network on MNIST (Zharikov, Isachenko and Bochkarev): what 100 draws say of each picture.

The study shows, for 10,000 pictures, the variance over the draws of each class's probability (here its mean over the
classes), the "expected error rate" (one minus the share of the commonest label among the draws), mistakes at an
expected error of exactly zero, and the least confident pictures. Settings are chosen on 10,000 held out pictures and
refitted on all 60,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.evaluation.seed_statistics import estimate
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Picture
from bayesify_studies.experiments.framework.fleets import variational
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e import cnn_page as page
from bayesify_studies.experiments.study_e import cnn_whole_kl
from bayesify_studies.experiments.study_e.cnn_networks import ERROR_EDGES, VARIANCE_EDGES, choose, final
from bayesify_studies.experiments.study_e.cnn_pictures import gallery, histograms, reliability


def run(work: Work) -> Findings:
    choices = [work.once(f"choose-{n}", choose, work, n) for n in range(len(work["tried"]))]
    fleet = min(range(len(choices)), key=lambda n: min(choices[n]["nll"]))
    setting = work["tried"][fleet][int(np.argmin(choices[fleet]["nll"]))]
    found = work.once("final", final, work, setting)
    seeds = found["seeds"]
    values = {name: [one[name] for one in seeds] for name in seeds[0] if isinstance(seeds[0][name], float)}
    over = found["expected_less_error"]
    return Findings(
        answer=page.answer(work, values, over, setting),
        lines=page.lines(values, over, work["draws"]),
        numbers={name: estimate(own) for name, own in values.items()} | {"expected_less_error": over},
        tables=[page.chosen_table(work, choices, setting), page.by_seed(seeds)],
        pictures=[
            Picture(
                work.figure("uncertainty", histograms(found, VARIANCE_EDGES, ERROR_EDGES)),
                "Histograms over the test pictures of all seeds, for right and wrong answers. Left: the variance "
                "over the draws (mean over the classes). Right: the expected error rate. There, the leftmost bar is "
                "an expected "
                "error "
                "of exactly zero.",
            ),
            Picture(
                work.figure("reliability", reliability(found, ERROR_EDGES)),
                "Actual error rate against expected error rate. Bars are 95% intervals. They treat the seeds' "
                "answers to "
                "the same picture as independent, so they are too short.",
            ),
            *(
                Picture(work.figure(name, gallery(found[name])), caption)
                for name, caption in (
                    (
                        "confident",
                        "The surest mistakes at an expected error of zero (first seed): digit, answer, probability.",
                    ),
                    ("least", "The pictures with the highest expected error rate (first seed)."),
                )
                if found[name]
            ),
        ],
        shortfalls=page.shortfalls(work, values),
    )


def tried(epochs: int, batch: int, settings: Sequence[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """One fleet: prior, KL and learning rate of each network."""
    common = {"epochs": epochs, "batch": batch, "schedule": "cosine"}
    return [common | variational(prior, kl) | {"rate": rate} for prior, kl, rate in settings]


EXPERIMENT = Experiment(
    name="mnist-cnn",
    title="A Bayesian convolutional network on MNIST",
    study="E",
    question="How well does study E's Bayesian convolutional network read digits? Does it expect as many errors as"
    " it makes, and how often is it wrong when all draws agree?",
    run=run,
    quick={
        "data": "mnist",
        "examples": 500,
        "tested": 500,
        "draws": 30,
        "seeds": 2,
        "tried": [tried(5, 50, [("normal:1", "uniform", 3e-3), ("normal:0.1", "uniform", 3e-3)])],
        "whole_kl": tried(3, 50, [("normal:1", "uniform", 3e-3)])[0],
    },
    full={
        "data": "mnist",
        "examples": None,
        "tested": None,
        "draws": 100,
        "seeds": 5,
        "tried": [
            tried(
                40,
                128,
                [
                    ("normal:1", "uniform", 1e-3),
                    ("normal:0.3", "uniform", 1e-3),
                    ("normal:0.1", "uniform", 1e-3),
                    ("normal:0.1", "uniform", 3e-3),
                    ("normal:0.1", "uniform,temperature=0.1", 1e-3),
                ],
            )
        ],
        "whole_kl": tried(40, 128, [("normal:1", "uniform", 1e-3)])[0],
    },
    additions=(cnn_whole_kl.ADDITION,),
)
