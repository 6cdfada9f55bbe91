"""What the page of `mnist-cnn` says of accuracy, expected errors and confident mistakes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, percent, settled, written
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.fleets import said
from bayesify_studies.experiments.framework.work import Work

TARGET = 0.992
TELLING = {"expected_error": "expected error", "variance": "variance", "entropy": "entropy"}


def lines(values: Mapping[str, list[float]], over: dict[str, Any], draws: int) -> list[Line]:
    accuracy = estimate([1 - one for one in values["error"]])
    says = {1: "the network expects more errors than it makes", -1: "the network expects fewer errors than it makes"}
    return [
        Line(
            "test accuracy",
            "not reported",
            percent(accuracy),
            f"{100 * TARGET:.1f}% was our target; mean weights alone: "
            f"{percent(estimate([1 - one for one in values['error_of_mean_weights']]))}",
        ),
        Line(
            "expected error rate (share of draws that do not predict the most common label), mean over the pictures",
            "a histogram without numbers",
            f"{percent(estimate(values['expected']))}; actual error {percent(estimate(values['error']))}",
            f"{says.get(settled(over), 'expected and actual errors do not differ significantly')} "
            f"({between(over, '+.2f', 100)} points, over the pictures)",
        ),
        Line(
            "mistakes at an expected error of exactly zero",
            "some are shown, not counted",
            f"{written(estimate(values['mistakes_at_zero']), '.1f')} pictures",
            f"{percent(estimate(values['zero']), 1)} of the pictures have an expected error of zero, of which "
            f"{percent(estimate(values['wrong_at_zero']))} are wrong; {draws} draws that all agree exclude only "
            f"expected error rates above {100 * (1 - 0.05 ** (1 / draws)):.1f}% (with 95% confidence)",
        ),
        *(
            Line(
                f"AUROC of the {name} for mistakes",
                "not done",
                written(estimate(values[f"tells_{score}"])),
                "the probability that a wrong answer has a higher score than a right one",
            )
            for score, name in TELLING.items()
        ),
    ]


def chosen_table(work: Work, choices: Sequence[Mapping[str, Any]], setting: Mapping[str, Any]) -> Table:
    rows = [
        [said(one), f"{nll:.4f}", f"{100 * accuracy:.2f}%", "chosen" if one == setting else ""]
        for fleet, part in zip(work["tried"], choices, strict=True)
        for one, nll, accuracy in zip(fleet, part["nll"], part["accuracy"], strict=True)
    ]
    return Table(
        "Chosen on validation by NLL, one seed each",
        ["setting", "NLL", "accuracy", ""],
        rows,
        "With a temperature below one, the KL has less weight. The result is then not the posterior under the prior.",
    )


def by_seed(seeds: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        "By seed",
        ["seed", "error", "NLL", "expected error", "pictures with expected error zero", "errors among them"],
        [
            [
                str(number),
                f"{100 * one['error']:.2f}%",
                f"{one['nll']:.4f}",
                f"{100 * one['expected']:.2f}%",
                f"{100 * one['zero']:.1f}%",
                f"{one['mistakes_at_zero']:.0f}",
            ]
            for number, one in enumerate(seeds)
        ],
    )


def answer(work: Work, values: Mapping[str, list[float]], over: dict[str, Any], setting: Mapping[str, Any]) -> str:
    few = work["examples"]
    subject = "The" if few is None else f"On {few:,} training pictures only, no test of it: the"
    says = {1: "more than", -1: "less than", 0: "not significantly different from"}
    heat = re.search(r"temperature=([\d.]+)", setting["kl"])
    cold = "" if heat is None else f" Its KL is weighted by {heat[1]}, so it is not the posterior under its prior."
    return (
        f"{subject} study's network reaches {percent(estimate([1 - one for one in values['error']]))} with "
        f"{work['draws']} draws. Its expected error rate is {percent(estimate(values['expected']))} on average, "
        f"{says[settled(over)]} the actual {percent(estimate(values['error']))}. The expected error rate finds "
        f"mistakes with an AUROC of "
        f"{written(estimate(values['tells_expected_error']))}. Of the pictures with an expected error of zero, "
        f"{written(estimate(values['mistakes_at_zero']), '.1f')} are wrong "
        f"({percent(estimate(values['wrong_at_zero']))}).{cold}"
    )


def shortfalls(work: Work, values: Mapping[str, list[float]]) -> list[str]:
    told = []
    accuracy = 1 - estimate(values["error"])["mean"]
    if accuracy < TARGET:
        told.append(
            f"Accuracy is {100 * accuracy:.2f}%, {100 * (TARGET - accuracy):.2f} points below the 99.2% aimed at."
        )
    if len(work.seeds) < 5:
        told.append(f"{len(work.seeds)} seeds; five were asked for.")
    if work["examples"] is not None:
        told.append(f"Trained on {work['examples']:,} pictures, not on 60,000.")
    return told
