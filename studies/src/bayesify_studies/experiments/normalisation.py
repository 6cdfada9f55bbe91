"""Study D's third claim: pixels / 126 are 0.1 to 0.2 points better than pixels / 255 or standardised ones.

Scaling the inputs scales the first layer's gradients: under plain SGD it is another learning rate there, so the rate is
also chosen for each scaling (on validation); Adam's steps do not scale with gradients. What is left is the prior, which
says something else of weights on larger inputs. The full preset trains 75 networks of 400 units, in nine
fleets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, paired, percent, settled
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import elbo_table, pictures, training, words
from bayesify_studies.experiments.study_d.training import ADAM, COUNTED, HALF, STUDY

SCALES = {"126": "pixels / 126", "255": "pixels / 255", "standard": "standardised"}
OTHERS = ("255", "standard")
WAYS = {
    "study": ("with the study's training", STUDY),
    "tuned": (
        "with each layer's entropy counted once, a uniform KL and a learning rate chosen for each scaling",
        COUNTED,
    ),
    "adam": ("with Adam and a falling rate", ADAM),
}
AGAINST = {1: "worse than", -1: "better than", 0: "not significantly different from"}


def run(work: Work) -> Findings:
    every = work.every(tasks(work))
    found = {(way, scale): every[f"{way}-{scale}"]["rates"] for way in WAYS for scale in SCALES}
    rates = {key: chosen(part) for key, part in found.items()}
    networks_of = {key: part[rates[key]] for key, part in found.items()}
    errors = {key: [one["error"] for one in rows] for key, rows in networks_of.items()}
    gain = {(way, other): paired(errors[way, "126"], errors[way, other]) for way in WAYS for other in OTHERS}
    lines = [
        Line(
            f"test error, pixels / 126 minus {SCALES[other]}, {said}",
            "-0.1 to -0.2 points" if way == "study" else "not done",
            f"{percent(estimate(errors[way, '126']))} against {percent(estimate(errors[way, other]))}",
            f"pixels / 126 is {words.verdict(gain[way, other])}"
            if settled(gain[way, other])
            else f"there is {words.verdict(gain[way, other])}",
        )
        for way, (said, _) in WAYS.items()
        for other in OTHERS
    ]
    rows = [
        [said, SCALES[scale], rates[way, scale], percent(estimate(errors[way, scale]))]
        for way, (said, _) in WAYS.items()
        for scale in SCALES
    ]
    grid = [
        [
            SCALES[scale],
            *(percent(estimate([one["validation"] for one in found["tuned", scale][rate]])) for rate in tried),
        ]
        for scale in SCALES
        for tried in [list(found["tuned", scale])]
    ]
    nothing = {scale: elbo_table.floors(work, {scale: HALF}, scale)[HALF] for scale in SCALES}
    every_network = {
        (said, SCALES[scale]): (networks_of[way, scale], scale) for way, (said, _) in WAYS.items() for scale in SCALES
    }
    pictured = {TITLES[way]: {scale: networks_of[way, scale] for scale in SCALES} for way in WAYS}
    return Findings(
        answer=words.scope(work) + _answer(gain) + words.limits(work),
        lines=lines,
        numbers={
            "errors": {f"{way}_{scale}": estimate(values) for (way, scale), values in errors.items()},
            "rates": {f"{way}_{scale}": float(rate) for (way, scale), rate in rates.items()},
            "elbo": elbo_table.numbers(every_network, nothing),
            "less_others": {f"{way}_{other}": difference for (way, other), difference in gain.items()},
        },
        tables=[
            Table("Test error by scaling", ["", "inputs", "learning rate (for a mean loss)", "test error"], rows),
            elbo_table.table(every_network, nothing),
            Table(
                "Validation error by scaling and learning rate (SGD)",
                ["inputs", *found["tuned", "126"]],
                grid,
                "The lowest error over the epochs, with 10 draws. The best learning rate of each row is tested above."
                + words.COUNTED,
            ),
        ],
        pictures=[
            Picture(
                work.figure("curves", pictures.curves(pictured, SCALES)),
                "Validation error by epoch (10 draws): mean and range of the seeds.",
            )
        ],
        shortfalls=[
            *words.shortfalls(work),
            *_at_the_edge({SCALES[scale]: float(rates["tuned", scale]) for scale in SCALES}, work["rates"]),
            (
                "In the study, the runs that compare scalings had a different learning rate from its other runs. Our "
                "runs have 0.1."
            ),
        ],
    )


TITLES = {"study": "as the study", "tuned": "rate chosen", "adam": "Adam, falling rate"}


def tasks(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each way of training and scaling."""
    return {f"{way}-{scale}": (networks, work, way, scale) for way in WAYS for scale in SCALES}


def networks(work: Work, way: str, scale: str) -> dict[str, Any]:
    """One scaling with every seed (and rate), trained one way."""
    data, (_, trained_by) = training.images(work, scale), WAYS[way]
    tried = work["rates"] if way == "tuned" else [trained_by.rate]
    kl = "reweighted" if way == "study" else "uniform"
    rates = training.train(
        work,
        f"{way}-{scale}",
        trained_by,
        data,
        {f"{rate:g}": {"prior": HALF, "rate": rate, "kl": kl} for rate in tried},
        units=work["units"],
        epochs=work["epochs" if way == "adam" else "study_epochs"],
        seeds=work.seeds,
        evaluate=lambda trained: training.by_label(trained, training.errors(data, draws=work["draws"])),
    )
    return {"rates": rates}


def chosen(part: Mapping[str, Any]) -> str:
    """The learning rate with the least validation error, over all seeds."""
    return min(part, key=lambda rate: sum(one["validation"] for one in part[rate]))


def _at_the_edge(chosen: Mapping[str, float], tried: Sequence[float]) -> list[str]:
    """A choice at the end of what was tried is none between too little and too much."""
    edge = [name for name, rate in chosen.items() if rate == max(tried)]
    if not edge:
        return []
    return [
        (
            f"The largest learning rate tried, {max(tried):g}, was chosen for: {', '.join(edge)}. A larger one may be "
            f"better."
        )
    ]


def _answer(gain: Mapping[tuple[str, str], dict[str, Any]]) -> str:
    told = []
    for way, (trained, _) in WAYS.items():
        said = [
            f"{AGAINST[settled(gain[way, other])]} {SCALES[other]} ({words.points(gain[way, other])})"
            for other in OTHERS
        ]
        told.append(f"{trained}, it is {' and '.join(said)}")
    return f"Is dividing pixels by 126 better? {words.sentences(told)}"


EXPERIMENT = Experiment(
    name="normalisation",
    title="Pixels divided by 126, by 255, or standardised",
    study="D",
    question="Study D found that dividing pixels by 126, as the paper does, is 0.1 to 0.2 points better than the "
    "usual scalings. Does the gain come from the scaling itself, or from the learning rate that it implies?",
    run=run,
    parts=tasks,
    quick={
        "data": "mnist",
        "examples": 2500,
        "units": 40,
        "study_epochs": 5,
        "epochs": 6,
        "rates": [0.01, 0.03, 0.1],
        "seeds": 2,
        "draws": 20,
    },
    full={
        "data": "mnist",
        "examples": None,
        "units": 400,
        "study_epochs": 600,
        "epochs": 100,
        "rates": [0.01, 0.03, 0.1],
        "seeds": 5,
        "draws": 50,
    },
)
