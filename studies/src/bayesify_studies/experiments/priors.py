"""Study D's second claim: a standard Gaussian prior (1.69%) beats every scale mixture, against the paper.

Also how much a test error of 10 draws moves when only the draws change, and whether networks with a higher ELBO err
less (`nearness.py`, on a processor). The full preset trains 60 networks of 400 units, in six fleets.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import stdev
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, percent, settled
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import elbo_table, nearness, pictures, training, words
from bayesify_studies.experiments.study_d.training import HALF, QUARTER, WAYS
from bayesify_studies.experiments.study_d.words import IN_WORDS, sentences

WIDE = "scale-mixture:0.75,1,0.000335463"  # e^-8
PRIORS = {"gaussian": "normal:1", "half": HALF, "quarter": QUARTER, "wide": WIDE}
NAMES = {
    "gaussian": "N(0, 1)",
    "half": "mixture (1/2, 1, e^-6)",
    "quarter": "mixture (1/4, 1, e^-6)",
    "wide": "mixture (3/4, 1, e^-8)",
}
MIXTURES = ("half", "quarter", "wide")
PAPER = {"gaussian": "1.69% (paper: 1.82%)", "half": "worse than 1.69%", "quarter": "worse than 1.69%"}
# A fleet's priors are of one family.
FAMILIES = {"gaussian": ("gaussian",), "mixtures": MIXTURES}
NEAR = {PRIORS[prior]: NAMES[prior] for prior in ("gaussian", "wide")}


def run(work: Work) -> Findings:
    every = work.every(tasks(work))
    near, floors = _near(work.on_processor()), _floors(work.on_processor())
    parts = {way: every[f"{way}-gaussian"] | every[f"{way}-mixtures"] for way in WAYS}
    errors = {(way, prior): [one["error"] for one in parts[way][prior]] for way in WAYS for prior in PRIORS}
    against = {(way, prior): paired(errors[way, prior], errors[way, "gaussian"]) for way in WAYS for prior in MIXTURES}
    lines = [
        Line(
            f"test error of the best of three mixtures (chosen on validation) and of N(0, 1), {IN_WORDS[way]}",
            "the Gaussian is better, 1.69%" if way == "study" else "paper: 1.36% (mixture) against 1.82%",
            f"{NAMES[best]} {percent(estimate(errors[way, best]))}, N(0, 1) "
            f"{percent(estimate(errors[way, 'gaussian']))}",
            f"the mixture is {words.verdict(against[way, best])}"
            if settled(against[way, best])
            else f"there is {words.verdict(against[way, best])}",
        )
        for way in WAYS
        for best in [chosen(parts[way])]
    ]
    every_network = {
        (IN_WORDS[way], NAMES[prior]): (parts[way][prior], PRIORS[prior]) for way in WAYS for prior in PRIORS
    }
    nothing = elbo_table.floors(work, PRIORS)
    again = {prior: moves(parts["study"][prior]) for prior in PRIORS}
    largest = max(found["range"] for found in again.values())
    lines.append(
        Line(
            f"variation of a test error with 10 draws, over {work['repeats']} sets of draws",
            "up to 0.1 points",
            "; ".join(
                f"{NAMES[prior]}: standard deviation {100 * found['deviation']:.3f} points, range "
                f"{100 * found['range']:.2f} points"
                for prior, found in again.items()
            ),
            f"the errors of one network differ by up to {100 * largest:.2f} points: " + _against_the_study(largest),
        )
    )
    lines += nearness.lines(NEAR, near, floors)
    return Findings(
        answer=words.scope(work) + _answer(against) + nearness.answer(NEAR, near, floors) + words.limits(work),
        lines=lines,
        numbers={
            "errors": {f"{way}_{prior}": estimate(values) for (way, prior), values in errors.items()},
            "less_gaussian": {f"{way}_{prior}": found for (way, prior), found in against.items()},
            "ten_draws": again,
            "nearness": nearness.numbers(near, floors),
            "elbo": elbo_table.numbers(every_network, nothing),
        },
        tables=[
            Table(
                "Priors",
                [
                    "",
                    "prior",
                    "published (study D)",
                    "test error",
                    "minus that of N(0, 1)",
                    "share of means closer to zero than 3 e^-6",
                ],
                [
                    [
                        IN_WORDS[way],
                        NAMES[prior],
                        PAPER.get(prior, "not run") if way == "study" else "",
                        percent(estimate(errors[way, prior])),
                        words.points(against[way, prior]) if prior in MIXTURES else "",
                        percent(estimate([one["seen"][-1]["in_spike"] for one in parts[way][prior]]), 1),
                    ]
                    for way in WAYS
                    for prior in PRIORS
                ],
                f"Test error with {work['draws']} draws. A mixture (pi, sigma1, sigma2) is the scale mixture pi N(0, "
                f"sigma1^2) + (1 - pi) N(0, sigma2^2). The study's training keeps the epoch with the lowest "
                f"validation error, Adam the last one." + words.COUNTED,
            ),
            elbo_table.table(every_network, nothing),
            nearness.table(work, NEAR, near, floors),
        ],
        pictures=pictures.in_training(work, parts, NAMES),
        shortfalls=words.shortfalls(work),
    )


def _near(work: Work) -> nearness.Found:
    cells = {(prior, one): (nearness.cell, work, prior, one) for prior in NEAR for one in nearness.ESTIMATORS}
    names = {cell: f"near-{cell[0].partition(':')[0]}-{cell[1]}" for cell in cells}
    found = work.every({names[cell]: part for cell, part in cells.items()})
    return {cell: found[name]["seeds"] for cell, name in names.items()}


def _floors(work: Work) -> nearness.Floors:
    names = {prior: f"floor-{prior.partition(':')[0]}" for prior in NEAR}
    found = work.every({name: (nearness.floor, work, prior) for prior, name in names.items()})
    return {prior: found[name] for prior, name in names.items()}


def tasks(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each way of training and family of priors."""
    return {f"{way}-{family}": (networks, work, way, family) for way in WAYS for family in FAMILIES}


def networks(work: Work, way: str, family: str) -> dict[str, Any]:
    """A family's priors with every seed, trained one way."""
    data = training.images(work)
    measure = training.errors(data, draws=work["draws"], repeats=work["repeats"] if way == "study" else 0)
    return training.train(
        work,
        f"{way}-{family}",
        WAYS[way],
        data,
        {prior: {"prior": PRIORS[prior]} for prior in FAMILIES[family]},
        units=work["units"],
        epochs=work["epochs" if way == "adam" else "study_epochs"],
        seeds=work.seeds,
        evaluate=lambda trained: training.by_label(trained, measure),
    )


def chosen(found: Mapping[str, Any]) -> str:
    """The mixture with the least validation error over all seeds."""
    return min(MIXTURES, key=lambda prior: sum(one["validation"] for one in found[prior]))


def moves(found: list[dict[str, Any]]) -> dict[str, float]:
    """By how much the errors of one network differ when only the draws do: mean deviation, and the largest range."""
    return {
        "deviation": sum(stdev(one["again"]) for one in found) / len(found),
        "range": max(max(one["again"]) - min(one["again"]) for one in found),
    }


def _against_the_study(largest: float) -> str:
    """What a range of errors says of "up to 0.1 points"."""
    return "more than in the study" if largest > 0.0015 else "as in the study" if largest >= 0.0005 else "less"


def _answer(against: Mapping[tuple[str, str], dict[str, Any]]) -> str:
    told = []
    for way in WAYS:
        better = [NAMES[p] for p in MIXTURES if settled(against[way, p]) < 0]
        worse = [NAMES[p] for p in MIXTURES if settled(against[way, p]) > 0]
        same = [NAMES[p] for p in MIXTURES if not settled(against[way, p])]
        said = [
            f"{', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]} "
            f"{'is' if len(names) == 1 else 'are'} {word} N(0, 1)"
            for names, word in (
                (better, "better than"),
                (worse, "worse than"),
                (same, "not significantly different from"),
            )
            if names
        ]
        told.append(f"{IN_WORDS[way]}, {'; '.join(said)}")
    return f"Does a Gaussian prior beat the scale mixtures? {sentences(told)}"


EXPERIMENT = Experiment(
    name="priors",
    title="A Gaussian prior compared with scale mixtures",
    study="D",
    question="Study D found N(0, 1) better than every scale mixture it tried; the paper found the opposite. Who is"
    " right, and does it depend on how they are trained?",
    run=run,
    parts=lambda work: tasks(work) | elbo_table.tasks(work, PRIORS),
    quick={
        "data": "mnist",
        "examples": 2500,
        "units": 50,
        "study_epochs": 5,
        "epochs": 8,
        "seeds": 3,
        "draws": 20,
        "repeats": 4,
        "nearness": {"examples": 1000, "units": 30, "epochs": 10},
    },
    full={
        "data": "mnist",
        "examples": None,
        "units": 400,
        "study_epochs": 600,
        "epochs": 100,
        "seeds": 5,
        "draws": 50,
        "repeats": 20,
        "nearness": {"examples": 10000, "units": 200, "epochs": 60},
    },
)
