"""The tables of pruning: errors by share and rule, what 98% costs, and the priors that were chosen from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.pruning import FRACTIONS, RULES
from bayesify.evaluation.seed_statistics import between, estimate, percent
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.study_d import words
from bayesify_studies.experiments.study_d.pruning_networks import losses

PUBLISHED = {
    "magnitude": {0.0: 2.03, 0.25: 2.41, 0.5: 5.33, 0.75: 30.67, 0.95: 63.11},
    "snr": {0.0: 2.03, 0.25: 2.59, 0.5: 5.89, 0.75: 41.05, 0.95: 82.50},
}
RULE = {"snr": "signal-to-noise", "magnitude": "magnitude"}


def short(prior: str) -> str:
    """A mixture's numbers, and its temperature where it has one."""
    mixture, _, kl = prior.partition(" ")
    told = mixture.replace("scale-mixture:", "mixture ").replace(",", ", ")
    return f"{told}, {kl.partition(',')[2].replace('=', ' ')}" if "," in kl else told


def errors(rows: Mapping[tuple[str, int], Any]) -> Table:
    published = [
        [
            "study D",
            "400",
            RULE[rule],
            *(f"{PUBLISHED[rule][f]:.2f}" if f in PUBLISHED[rule] else "" for f in FRACTIONS),
        ]
        for rule in RULES
    ]
    ours = [
        [name, str(units), RULE[rule], *(percent(estimate(one["errors"])).rstrip("%") for one in row[rule])]
        for (name, units), row in rows.items()
        for rule in RULES
    ]
    return Table(
        "Test error (%) after pruning",
        ["network", "units", "pruned by", *(f"{100 * fraction:g}%" for fraction in FRACTIONS)],
        [*published, *ours],
        "Mean over seeds ± its standard error. Pruned weights are zero in every draw; biases are kept. Three numbers "
        "are pi, sigma1 and sigma2 of a scale-mixture prior. A temperature below one gives the KL less weight.",
    )


def costs(rows: Mapping[tuple[str, int], Any]) -> Table:
    told = []
    for (name, units), row in rows.items():
        loss = losses(row)
        told.append(
            [
                name,
                str(units),
                words.points(loss["seeds"]),
                between(loss["seeds"], "+.2f", 100),
                between(loss["images"], "+.2f", 100),
                f"{min(loss['p']):.2g}",
                "yes" if loss["seen"] else "no",
            ]
        )
    headings = [
        "network",
        "units",
        "98% pruned minus unpruned",
        "over seeds",
        "over images",
        "smallest p over seeds",
        "significant loss",
    ]
    return Table(
        "What 98% pruning by signal-to-noise costs, by paired tests",
        headings,
        told,
        "For intervals over images, the errors of each image are averaged over the seeds. The p values come from an "
        "exact McNemar test for each seed. A loss is significant if either interval lies above zero.",
    )


def candidates(rounds: Sequence[Mapping[str, Any]], units: int) -> Table:
    """Every round's candidates; one that was in two of them shows what validation cannot tell apart."""
    rows = [
        [str(place), short(name), f"{100 * scores['error']:.2f}%", f"{100 * scores['pruned']:.2f}%"]
        for place, one in enumerate(rounds, 1)
        for name, scores in one["found"].items()
    ]
    again = []
    for name in rounds[0]["found"]:
        told = [f"{100 * one['found'][name]['pruned']:.2f}%" for one in rounds if name in one["found"]]
        if len(told) > 1:
            again.append(
                f"The {short(name)} was trained in {len(told)} rounds. With 98% pruned, its errors are "
                f"{' and '.join(told)}. Differences of this size are chance."
            )
    return Table(
        f"Validation error of the candidate priors, {units} units",
        ["round", "prior", "unpruned", "98% pruned by signal-to-noise"],
        rows,
        " ".join(again),
    )
