"""What the page of `transfer` says: with the old posterior, without it, and against fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.findings import Line, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_e.transfer_networks import VARIATIONAL, WAYS

TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "8x8 digits"}
SCORES = ("accuracy", "nll")
OURS = "power"
OTHERS = {
    "nothing": "training from scratch",
    "start": "only starting from the old means and widths",
    "tuned": "fine-tuning",
}
# What the rows of a table of scores are.
ROWS = (
    "The first four rows are variational networks. Two have the old posterior as prior: with the old data discounted, "
    "or in full. One has a normal prior and only starts from the old means and widths. The last three "
    "rows are plain networks. `last layer only` keeps the old weights of all other layers."
)
# What it must beat to be of use.
RIVALS = ("nothing", "tuned")

# By data, way and count: the chosen scale's values, one for each seed.
Values = Mapping[tuple[str, str, int], Mapping[str, list[float]]]


def line(data: str, count: int, values: Values, gaps: Mapping[Any, dict[str, Any]]) -> Line:
    said = {1: "better", -1: "worse", 0: "not significantly different"}
    with_it, without = (percent(estimate(values[data, way, count]["accuracy"]), 1) for way in (OURS, "nothing"))
    tuned = percent(estimate(values[data, "tuned", count]["accuracy"]), 1)
    meaning = "; ".join(
        f"compared with {OTHERS[other]}: {said[settled(gaps[data, other, count, 'accuracy'])]} in accuracy "
        f"({between(gaps[data, other, count, 'accuracy'], '+.1f', 100)} points) and "
        f"{said[-settled(gaps[data, other, count, 'nll'])]} in NLL ({between(gaps[data, other, count, 'nll'], '+.3f')})"
        for other in RIVALS
    )
    return Line(
        f"{TITLES.get(data, data)}, {count} pictures of each new class",
        "planned in the study, not done",
        f"{with_it} with the discounted old posterior, {without} from scratch, {tuned} with fine-tuning",
        meaning,
    )


def score_table(data: str, score: str, values: Values, counts: Sequence[int]) -> Table:
    def form(own: dict[str, Any]) -> str:
        return percent(own, 1) if score == "accuracy" else written(own)

    rows = [
        [name, *(form(estimate(values[data, way, count][score])) for count in counts)] for way, name in WAYS.items()
    ]
    return Table(
        f"{TITLES.get(data, data)}: {'accuracy' if score == 'accuracy' else 'NLL'} on the new classes",
        ["", *(f"{count} of each" for count in counts)],
        rows,
        ROWS if score == "accuracy" else "",
    )


def against(data: str, gaps: Mapping[Any, dict[str, Any]], counts: Sequence[int]) -> Table:
    rows = [
        [WAYS[other], *(f"{100 * gap['mean']:+.1f} ({_edges(gap)})" for gap in own)]
        for other in WAYS
        if other != OURS
        for own in [[gaps[data, other, count, "accuracy"] for count in counts]]
    ]
    return Table(
        f"{TITLES.get(data, data)}: discounted old posterior minus each other method, points of accuracy",
        ["compared with", *(f"{count} of each" for count in counts)],
        rows,
        "Paired over seeds, with 95% intervals.",
    )


def setting(scale: float, rate: float, power: float) -> str:
    return f"{scale:g}, {rate:g}" + ("" if power == 1 else f", power {power:g}")


def _edges(gap: Mapping[str, Any]) -> str:
    if "interval" not in gap:
        return "one seed"
    low, high = gap["interval"]
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def answer(work: Work, values: Values, gaps: Mapping[Any, dict[str, Any]], chosen: Mapping[Any, Any]) -> str:
    cells = [(data, count) for data in work["data"] for count in work["counts"]]
    told = []
    for other, words in OTHERS.items():
        better, worse = (
            {
                score: sum(settled(gaps[data, other, count, score]) == sign * side for data, count in cells)
                for score, side in (("accuracy", 1), ("nll", -1))
            }
            for sign in (1, -1)
        )
        told.append(
            f"Compared with {words}, it is better in {better['accuracy']} and worse in {worse['accuracy']} of "
            f"{len(cells)} cases by accuracy (by NLL: better in {better['nll']}, worse in {worse['nll']})."
        )
    few = work["old_examples"] is not None and work["old_examples"] < 10000
    scope = f"After {work['old_examples']:,} old pictures only, a trial of the code: " if few else ""
    return (
        f"{scope}Does the discounted old posterior help as the prior? Discounted means that the old data count with a "
        f"weight below 1. {' '.join(told)} A case is a data set and a "
        "number of labelled pictures, and only significant differences count. "
        + _where_from(work, values, chosen, cells)
    )


def _where_from(work: Work, values: Values, chosen: Mapping[Any, Any], cells: Sequence[tuple[str, int]]) -> str:
    """What a gain is due to: how much of the old data is left in the chosen prior, and what all of them do."""
    least = min(work["powers"])
    faint = sum(chosen[data, OURS, count][2] == least for data, count in cells)
    apart = [
        paired(values[data, "prior", count]["accuracy"], values[data, "nothing", count]["accuracy"])
        for data, count in cells
    ]
    better, worse = (sum(settled(one) == sign for one in apart) for sign in (1, -1))
    start = ". Such a prior says almost nothing, so what helps is the start" if faint > len(cells) / 2 else ""
    return (
        f"Validation data chose the strongest discount tried (weight {least:g} for the old data) in {faint} of "
        f"{len(cells)} cases{start}. Without a discount, the old posterior is better than training from scratch in "
        f"{better} and worse "
        f"in {worse} cases by accuracy."
    )


def shortfalls(work: Work, gaps: Mapping[Any, dict[str, Any]]) -> list[str]:
    told = [
        f"{TITLES.get(data, data)}, {count} of each: the old posterior is not significantly better than "
        f"{OTHERS[other]} "
        f"({between(gaps[data, other, count, 'accuracy'], '+.1f', 100)} points of accuracy)."
        for data in work["data"]
        for count in work["counts"]
        for other in RIVALS
        if settled(gaps[data, other, count, "accuracy"]) < 1
    ]
    if len(work.seeds) < 10:
        told.append(f"{len(work.seeds)} seeds instead of ten.")
    if work["old_examples"] is not None:
        told.append(f"The old classes were learnt from {work['old_examples']:,} pictures only.")
    told.append(
        f"Settings were chosen on {work['chosen_on']:,} labelled pictures, with {work['choosing']} "
        f"seed{'s' if work['choosing'] > 1 else ''}. A user with few labels would have fewer pictures. With other "
        "seeds, training may fail at the chosen settings; a large standard error shows where."
    )
    return told


def picture(values: Values, data: Sequence[str], counts: Sequence[int]) -> Any:
    from matplotlib.ticker import NullLocator

    from bayesify.plots import style
    from bayesify_studies.experiments.framework.drawing import below

    colors = ("#1f2328", "#0072b2", "#3a9bd0", "#59636e", "#d55e00", "#c77c00", "#b5518c")
    figure = style.new_figure(8.4, 3.1 * len(data) + 0.5)
    for row, name in enumerate(data):
        for column, score in enumerate(SCORES):
            axes = figure.add_subplot(len(data), 2, 2 * row + column + 1)
            for number, (way, words) in enumerate(WAYS.items()):
                found = [estimate(values[name, way, count][score]) for count in counts]
                means = [one["mean"] for one in found]
                reach = [one.get("standard_error", 0.0) for one in found]
                places = [count * (1 + 0.02 * (number - 3)) for count in counts]
                axes.errorbar(
                    places,
                    means,
                    reach,
                    color=colors[number],
                    marker="*osD^vP"[number],
                    markersize=4,
                    linewidth=1.3,
                    linestyle="-" if way in VARIATIONAL else "--",
                    label=words,
                )
            axes.set_xscale("log")
            axes.set_xticks(list(counts), [str(count) for count in counts])
            axes.xaxis.set_minor_locator(NullLocator())
            style.dress(
                axes,
                title=TITLES.get(name, name),
                x="labelled pictures of each new class" if row + 1 == len(data) else "",
                y="accuracy" if score == "accuracy" else "NLL (nats)",
            )
            if score == "accuracy":
                style.percent(axes, "y")
    below(figure)
    return figure
