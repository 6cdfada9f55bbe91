"""What the page of `unseen-class` says: each method against the study, methods against each other, what was missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, signed, written
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.fleets import said
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c.unseen_networks import KINDS, SCORES, SHARES

# The lecture's table, and its filter curves read off at 1, 2, 3, 5 and 8 thousand of 10,000 pictures.
ACCURACY = {"plain": 0.649, "ensemble": 0.731, "dropout": 0.706, "variational": 0.684}
FILTER = {
    "plain": (0.971, 0.931, 0.884, 0.788, 0.665),
    "ensemble": (0.990, 0.974, 0.950, 0.871, 0.743),
    "dropout": (0.991, 0.971, 0.940, 0.851, 0.717),
    "variational": (0.976, 0.956, 0.918, 0.833, 0.702),
}
STUDY_EPOCHS = {"plain": 50, "ensemble": 50, "dropout": 400, "variational": 700}
WAYS = {
    "study": "as the study",
    "equal": "equal budgets",
    "refit": "equal budgets, refitted on all images",
}
IN_SCORES = {"entropy": "entropy", "confidence": "confidence", "epistemic": "mutual information"}

# What was found by kind; every score by way and kind, a value for each seed; differences by way and score.
Cells = dict[str, dict[str, Any]]
Values = Mapping[tuple[str, str], Mapping[str, list[float]]]
Gaps = Mapping[tuple[str, str], dict[str, Any]]
Digits = Mapping[tuple[str, str], dict[str, Any]]


def by_score(part: Mapping[str, Any]) -> dict[str, list[float]]:
    seeds = part["seeds"]
    found = {name: [one[name] for one in seeds] for name in ("accuracy", "nll", "ece")}
    found |= {f"auroc {name}": [one["auroc"][name] for one in seeds] for name in SCORES}
    return found | {f"filter {share}": [one["filter"][n] for one in seeds] for n, share in enumerate(SHARES)}


def accuracy_line(kind: str, by_way: Mapping[str, Mapping[str, list[float]]]) -> Line:
    ours = {way: estimate(values["accuracy"]) for way, values in by_way.items()}
    less = paired(by_way["study"]["accuracy"], [ACCURACY[kind]] * len(by_way["study"]["accuracy"]))
    said = {
        1: "above the study's single run",
        -1: "below the study's single run",
        0: "not significantly different from the study's single run",
    }
    return Line(
        f"accuracy on known classes, {KINDS[kind]}",
        f"{ACCURACY[kind]:.3f}",
        "; ".join(f"{percent(one, 1)} {WAYS[way]}" for way, one in ours.items()),
        f"as the study: {said[settled(less)]} ({between(less, '+.1f', 100)} points)",
    )


def filter_line(kind: str, by_way: Mapping[str, Mapping[str, list[float]]]) -> Line:
    ours = {way: _means(values) for way, values in by_way.items()}
    said = "; ".join(f"{WAYS[way]}: {_against_study(kind, means)}" for way, means in ours.items())
    return Line(
        f"accuracy of the 10/20/30/50/80% most certain predictions, {KINDS[kind]}",
        "/".join(f"{value:.3f}" for value in FILTER[kind]),
        "; ".join("/".join(f"{value:.3f}" for value in means) + f" {WAYS[way]}" for way, means in ours.items()),
        said,
    )


def _means(values: Mapping[str, list[float]]) -> list[float]:
    return [estimate(values[f"filter {share}"])["mean"] for share in SHARES]


def _against_study(kind: str, means: list[float]) -> str:
    below = {
        f"{100 * share:.0f}": ours - theirs
        for share, ours, theirs in zip(SHARES, means, FILTER[kind], strict=True)
        if ours <= theirs
    }
    if not below:
        return "above the study's at every share"
    return f"not above the study's for the top {', '.join(below)}% (up to {-min(below.values()):.3f} below)"


def gap_line(way: str, gap: Gaps) -> Line:
    return Line(
        f"variational minus MC dropout, accuracy, {WAYS[way]}",
        f"{100 * (ACCURACY['variational'] - ACCURACY['dropout']):+.1f} points" if way == "study" else "not done",
        signed(gap[way, "accuracy"], ".1f", " points", 100.0),
        f"variational is {_word(gap[way, 'accuracy'])}; its NLL is "
        f"{_word(gap[way, 'nll'], less_is_better=True)} ({between(gap[way, 'nll'], '+.3f')}), its AUROC for the "
        "unseen class is "
        f"{_word(gap[way, 'auroc entropy'])} ({between(gap[way, 'auroc entropy'], '+.3f')})",
    )


def _word(difference: dict[str, Any], *, less_is_better: bool = False) -> str:
    sign = settled(difference) * (-1 if less_is_better else 1)
    return {1: "better", -1: "worse", 0: "not significantly different"}[sign]


def tables(found: Mapping[str, Cells], values: Values) -> list[Table]:
    rows, told = [], []
    for way, cells in found.items():
        for kind, name in KINDS.items():
            own = values[way, kind]
            rows.append(
                [
                    f"{name}, {WAYS[way]}",
                    f"{cells[kind]['gradients'] / 1e3:,.0f}",
                    percent(estimate(own["accuracy"]), 1),
                    written(estimate(own["nll"])),
                    written(estimate(own["ece"])),
                ]
            )
            told.append(
                [
                    f"{name}, {WAYS[way]}",
                    *(
                        "has none"
                        if (kind, score) == ("plain", "epistemic")
                        else written(estimate(own[f"auroc {score}"]))
                        for score in SCORES
                    ),
                ]
            )
    return [
        Table(
            "Known classes",
            ["", "training cost, thousands of per-example gradients", "accuracy", "NLL", "calibration error"],
            rows,
        ),
        Table("AUROC for the unseen class", ["", *(IN_SCORES[score] for score in SCORES)], told),
    ]


def chosen_table(work: Work, choices: Cells) -> Table:
    rows = []
    for kind, part in choices.items():
        for number, (setting, row) in enumerate(zip(work["cifar"]["tried"][kind], part["rows"], strict=True)):
            mark = "chosen" if number == part["best"] else ""
            words = f"{setting['epochs']} epochs, {said(setting)}"
            rows.append([KINDS[kind], words, f"{row['nll']:.3f}", f"{100 * row['accuracy']:.1f}%", mark])
    tried = ", ".join(f"{KINDS[kind]}: {len(part['rows'])}" for kind, part in choices.items())
    return Table(
        "Chosen on validation, one seed each",
        ["", "setting", "NLL", "accuracy", ""],
        rows,
        "With a temperature below one, the KL has less weight. The result is then not the posterior under the stated "
        "prior. For plain networks and ensembles, the prior is weight decay. An ensemble's epochs are those of each "
        "member. The budget is an upper limit: a plain network may be trained for fewer epochs. Settings tried: "
        f"{tried}. With one seed each, close settings may be in the wrong order.",
    )


def digit_table(digits: Digits) -> Table:
    withheld = list(dict.fromkeys(digit for digit, _ in digits))
    rows = [
        [digit, *(written(estimate(by_score(digits[digit, kind])["auroc entropy"])) for kind in KINDS)]
        for digit in withheld
    ]
    rows.append(["mean of the digits", *(f"{estimate(_over_digits(digits, kind))['mean']:.3f}" for kind in KINDS)])
    # A mean over digits has no error over seeds, which is what stands after ± elsewhere.
    accuracies = [estimate(_over_digits(digits, kind, "accuracy"))["mean"] for kind in KINDS]
    rows.append(["accuracy on known digits", *(f"{100 * mean:.2f}%" for mean in accuracies)])
    less = paired(_over_digits(digits, "variational"), _over_digits(digits, "dropout"))
    return Table(
        "MNIST with one digit left out: AUROC of the entropy",
        ["digit", *KINDS.values()],
        rows,
        f"Variational minus MC dropout, mean over the digits: {less['mean']:+.3f} ({between(less, '+.3f')}). All "
        f"methods have equal budgets.",
    )


def _over_digits(digits: Digits, kind: str, score: str = "auroc entropy") -> list[float]:
    return [estimate(by_score(part)[score])["mean"] for (_, own), part in digits.items() if own == kind]


def numbers(
    values: Values,
    gap: Gaps,
    digits: Digits,
) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        f"{way}-{kind}": {score: estimate(seeds) for score, seeds in own.items()} for (way, kind), own in values.items()
    }
    numbers["variational_less_dropout"] = {f"{way} {score}": one for (way, score), one in gap.items()}
    numbers["digits_auroc"] = {kind: estimate(_over_digits(digits, kind)) for kind in KINDS}
    return numbers


def answer(
    found: Mapping[str, Cells],
    values: Values,
    gap: Gaps,
) -> str:
    last = list(found)[-1]
    ranks = ", ".join(
        f"{KINDS[kind]} {percent(estimate(values['equal', kind]['accuracy']), 1)}"
        for kind in sorted(KINDS, key=lambda kind: -estimate(values["equal", kind]["accuracy"])["mean"])
    )
    first, second = sorted(KINDS, key=lambda kind: -estimate(values["equal", kind]["auroc entropy"])["mean"])[:2]
    lead = paired(values["equal", first]["auroc entropy"], values["equal", second]["auroc entropy"])
    above = [kind for kind in KINDS if "at every share" in _against_study(kind, _means(values[last, kind]))]
    than = {1: "better than", -1: "worse than", 0: "not significantly different from"}
    return (
        f"With equal budgets, the accuracies on known classes are: {ranks}. Compared with MC dropout, the accuracy of "
        f"variational networks is {_in_every_way(gap)}. "
        f"The highest AUROC for the unseen class is {written(estimate(values['equal', first]['auroc entropy']))} "
        f"({KINDS[first]}), {than[settled(lead)]} the next ({KINDS[second]}). "
        f"{WAYS[last].capitalize()}: the accuracy curves of {len(above)} of the four methods lie above the study's "
        "everywhere."
    )


def _in_every_way(gap: Gaps) -> str:
    """What every way of training says of the accuracy of variational networks against MC dropout."""
    trained = {
        "study": "with the study's settings",
        "equal": "at equal budgets",
        "refit": "after refitting on all images",
    }
    word = {1: "higher", -1: "lower", 0: "not significantly different"}
    told = [
        f"{word[settled(gap[way, 'accuracy'])]} {words}" for way, words in trained.items() if (way, "accuracy") in gap
    ]
    return ", ".join(told[:-1]) + f", and {told[-1]}"


def scope(work: Work) -> str:
    if work["cifar"]["examples"] is None:
        return ""
    return f"On {work['cifar']['examples']:,} training pictures only, which does not test the study: "


def shortfalls(
    work: Work,
    found: Mapping[str, Cells],
    values: Values,
    gap: Gaps,
) -> list[str]:
    told = []
    if work["cifar"]["examples"] is not None:
        told.append("So few pictures and epochs say nothing about the figures to reach: the full preset does.")
    for way in list(found)[1:] if work["cifar"]["examples"] is None else ():
        ensemble = estimate(values[way, "ensemble"]["accuracy"])["mean"]
        if ensemble < ACCURACY["ensemble"]:
            told.append(
                f"{WAYS[way]}: the ensemble reaches an accuracy of {ensemble:.3f}; the goal was {ACCURACY['ensemble']}."
            )
        if settled(gap[way, "accuracy"]) < 0:
            told.append(
                f"{WAYS[way]}: variational networks are {-100 * gap[way, 'accuracy']['mean']:.1f} points of accuracy "
                "below MC dropout; the goal was to be level."
            )
        for kind, name in KINDS.items():
            said = _against_study(kind, _means(values[way, kind]))
            if "not above" in said:
                told.append(f"{WAYS[way]}, {name}: the accuracy of the most certain predictions is {said}.")
    shorter = {
        kind: setting["epochs"]
        for kind, setting in work["cifar"]["study"].items()
        if setting["epochs"] < STUDY_EPOCHS[kind]
    }
    if shorter:
        said = ", ".join(f"{KINDS[kind]} {epochs} (study: {STUDY_EPOCHS[kind]})" for kind, epochs in shorter.items())
        told.append(f"With the study's settings, we train for fewer epochs than the study: {said}.")
    if len(work.seeds) < 5:
        told.append(f"{len(work.seeds)} seeds instead of five.")
    if work["cifar"]["data"] == "cifar10":
        told.append("20 of our 10,000 test pictures (19 ships, 1 horse) are decoded JPEG, not the original pixels.")
    return told
