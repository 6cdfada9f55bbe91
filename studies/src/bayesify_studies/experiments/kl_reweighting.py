"""Study D's first claim: sharing the KL unevenly among batches, 2^(M-i)/(2^M-1), is 0.3 points better than evenly.

The full preset trains 30 networks of 400 units, in three fleets.
"""

from __future__ import annotations

from typing import Any

from bayesify.evaluation.seed_statistics import estimate, of_one_more, paired, percent, settled, signed
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_d import elbo_table, pictures, training, words
from bayesify_studies.experiments.study_d.training import HALF, WAYS
from bayesify_studies.experiments.study_d.words import IN_WORDS

SHARES = {"uniform": "evenly", "reweighted": "re-weighted"}
PUBLISHED = -0.003


def run(work: Work) -> Findings:
    parts = work.every(tasks(work))
    errors = {(way, kl): [one["error"] for one in parts[way][kl]] for way in WAYS for kl in SHARES}
    gain = {way: paired(errors[way, "reweighted"], errors[way, "uniform"]) for way in WAYS}
    lines = [
        Line(
            f"test error, re-weighted minus uniform, {IN_WORDS[way]}",
            "-0.3 points" if way == "study" else "not done",
            f"{percent(estimate(errors[way, 'reweighted']))} against {percent(estimate(errors[way, 'uniform']))}",
            f"re-weighting is {words.verdict(gain[way])}"
            if settled(gain[way])
            else f"there is {words.verdict(gain[way])}",
        )
        for way in WAYS
    ]
    last = {(way, kl): [one["seen"][-1] for one in parts[way][kl]] for way in WAYS for kl in SHARES}
    symmetry = {
        way: paired(*([abs(one["skewness"]) for one in last[way, kl]] for kl in ("reweighted", "uniform")))
        for way in WAYS
    }
    for way in WAYS:
        skewness = {kl: estimate([one["skewness"] for one in last[way, kl]]) for kl in SHARES}
        lines.append(
            Line(
                f"skewness of the weights, {IN_WORDS[way]}",
                "re-weighting is slightly more symmetric" if way == "study" else "not done",
                ", ".join(f"{signed(skewness[kl])} {SHARES[kl]}" for kl in SHARES),
                f"|skewness| {_sided(symmetry[way], 'larger with re-weighting', 'smaller with re-weighting')}",
            )
        )
    starts = {way: parts[way]["reweighted"][0]["seen"][0]["widths"] for way in WAYS}
    lines.append(
        Line(
            "median posterior widths of the three layers, first and last epoch, re-weighted, first seed",
            "not shown",
            "; ".join(
                f"{IN_WORDS[way]}: "
                + ", ".join(f"{a:.4f} to {b:.4f}" for a, b in zip(starts[way], _widths(last, way), strict=True))
                for way in WAYS
            ),
            f"the widths change by up to {100 * _moved(starts['study'], _widths(last, 'study')):.0f}% with the "
            f"study's training and by up to {100 * _moved(starts['adam'], _widths(last, 'adam')):.0f}% with Adam",
        )
    )
    every_network = {(IN_WORDS[way], SHARES[kl]): (parts[way][kl], HALF) for way in WAYS for kl in SHARES}
    nothing = elbo_table.floors(work, {"half": HALF})
    rows = [
        [
            IN_WORDS[way],
            SHARES[kl],
            percent(estimate(errors[way, kl])),
            signed(estimate([one["skewness"] for one in last[way, kl]])),
            percent(estimate([one["asymmetry"] for one in last[way, kl]])),
            percent(estimate([one["in_spike"] for one in last[way, kl]]), 1),
        ]
        for way in WAYS
        for kl in SHARES
    ]
    return Findings(
        answer=words.scope(work) + _answer(gain) + words.limits(work),
        lines=lines,
        numbers={
            "errors": {f"{way}_{kl}": estimate(values) for (way, kl), values in errors.items()},
            "gain": gain,
            "change_of_absolute_skewness": symmetry,
            "elbo": elbo_table.numbers(every_network, nothing),
        },
        tables=[
            Table(
                "Both weightings",
                [
                    "",
                    "KL over the batches",
                    "test error",
                    "skewness",
                    "asymmetry",
                    "share of means closer to zero than 3 e^-6",
                ],
                rows,
                "Prior: scale mixture with pi = 1/2, sigma1 = 1, sigma2 = e^-6. Asymmetry is the share of the "
                "weights' histogram that differs "
                "from its mirror image. Re-weighting pushes weights out of the prior's narrow component. One "
                "batch of an epoch has half of the KL. With the study's learning rate, a step on this batch moves a "
                "weight of the narrow component by 0.1 * 0.5 / 100 / e^-12 = 81 times its distance from zero. "
                "If all batches have the same share of the KL, a step moves the weight by 0.33 times this distance."
                + words.COUNTED,
            ),
            elbo_table.table(every_network, nothing),
        ],
        pictures=pictures.in_training(work, parts, SHARES),
        shortfalls=words.shortfalls(work),
    )


def tasks(work: Work) -> dict[str, tuple[Any, ...]]:
    """A part for each way of training."""
    return {way: (networks, work, way) for way in WAYS}


def networks(work: Work, way: str) -> dict[str, Any]:
    """Both weightings with every seed, trained one way."""
    data = training.images(work)
    return training.train(
        work,
        way,
        WAYS[way],
        data,
        {kl: {"prior": HALF, "kl": kl} for kl in SHARES},
        units=work["units"],
        epochs=work["epochs" if way == "adam" else "study_epochs"],
        seeds=work.seeds,
        evaluate=lambda trained: training.by_label(trained, training.errors(data, draws=work["draws"])),
    )


def _answer(gain: dict[str, dict[str, Any]]) -> str:
    said = {1: "hurts", -1: "helps", 0: "makes no significant difference"}
    told = words.sentences(
        f"{IN_WORDS[way]}, it {said[settled(gain[way])]} ({words.points(gain[way])})" for way in WAYS
    )
    low, high = of_one_more(gain["study"]) if "interval" in gain["study"] else (0.0, 0.0)
    inside = low <= PUBLISHED <= high
    return f"Does KL re-weighting lower the test error? {told} The published gain of 0.3 points " + (
        "lies inside the 95% prediction interval for one pair of runs with the study's training."
        if inside
        else "lies outside the 95% prediction interval for one pair of runs with the study's training."
        if "interval" in gain["study"]
        else "cannot be judged from one seed."
    )


def _sided(difference: dict[str, Any], larger: str, smaller: str) -> str:
    side = {1: larger, -1: smaller, 0: "not significantly different"}[settled(difference)]
    return f"{side} ({signed(difference)})"


def _widths(last: dict[tuple[str, str], Any], way: str) -> list[float]:
    widths: list[float] = last[way, "reweighted"][0]["widths"]
    return widths


def _moved(first: list[float], last: list[float]) -> float:
    return max(abs(b / a - 1) for a, b in zip(first, last, strict=True))


EXPERIMENT = Experiment(
    name="kl-reweighting",
    title="Does re-weighting the KL over the batches of an epoch help?",
    study="D",
    question="The paper weights the KL of batch i of M by 2^(M-i)/(2^M-1). Study D found that this lowers the test "
    "error by 0.3 points compared with equal weights, and makes the distribution of the network's weights slightly "
    "more symmetric. Does this hold with the study's training, and with a better one?",
    run=run,
    parts=lambda work: tasks(work) | elbo_table.tasks(work, {"half": HALF}),
    quick={"data": "mnist", "examples": 2500, "units": 60, "study_epochs": 8, "epochs": 8, "seeds": 3, "draws": 20},
    full={"data": "mnist", "examples": None, "units": 400, "study_epochs": 600, "epochs": 100, "seeds": 5, "draws": 50},
)
