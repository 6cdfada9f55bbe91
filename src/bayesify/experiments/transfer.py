"""An old posterior as the new prior, which study E named as a goal: five classes are learnt, then five others from few.

    p(w | old, new)  is proportional to  p(new | w) p(w | old)

A network learns the first five classes from thousands of pictures. Then it is given 5 to 50 labelled pictures of each
of the other five; its last layer has to start anew. With the old posterior as the prior every weight may move as far as
the old data left it open. Against it: the same network that knows nothing, one that only starts where the old means
are, and plain networks, fine-tuned, with all but the last layer fixed, and from scratch. Seeds change the old network,
the new pictures and the noise. On 16 cores the full preset needs about ten minutes (`--jobs 16`); a GPU is no help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.experiments.experiment import Experiment
from bayesify.experiments.findings import Findings, Line, Picture, Table
from bayesify.experiments.statistics import between, estimate, paired, percent, settled, written
from bayesify.experiments.transfer_networks import VARIATIONAL, WAYS, Cell, one_seed
from bayesify.experiments.work import Work

TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "8x8 digits"}
# A choice is made on seeds that are not tested.
FIRST_CHOICE = 1000
SCORES = ("accuracy", "nll")
OURS = "power"
OTHERS = {
    "prior": "the whole old posterior",
    "nothing": "no old data",
    "start": "the old means as a start alone",
    "tuned": "fine-tuning",
    "probe": "training the last layer only",
}

# By data, way and count: the chosen scale's values, one for each seed.
Setting = tuple[float, float, float]
Values = Mapping[tuple[str, str, int], Mapping[str, list[float]]]


def run(work: Work) -> Findings:
    # Small networks and few pictures: a GPU would wait for Python.
    work = Work(work.folder, work.settings, device="cpu", jobs=work.jobs, progress=work.progress)
    counts = work["counts"]
    every = [(way, count, *one) for way in WAYS for count in work["choose_at"] for one in _tried(work, way)]
    tried = work.every(
        {
            f"choose-{data}-{n}": (_choosing, work, f"choose-{data}-{n}", data, FIRST_CHOICE + n, every)
            for data in work["data"]
            for n in range(work["choosing"])
        }
    )
    chosen: dict[str, dict[str, Setting]] = {}
    for data in work["data"]:
        rows = [cell for n in range(work["choosing"]) for cell in tried[f"choose-{data}-{n}"]["cells"]]
        chosen[data] = {way: _least_nll(rows, way, _tried(work, way)) for way in WAYS}
    parts = work.every(
        {
            f"{data}-{seed}": (
                one_seed,
                work,
                f"{data}-{seed}",
                data,
                seed,
                [(way, count, *chosen[data][way]) for way in WAYS for count in counts],
            )
            for data in work["data"]
            for seed in work.seeds
        }
    )
    values: dict[tuple[str, str, int], dict[str, list[float]]] = {
        (data, way, count): {
            score: [_of(parts[f"{data}-{seed}"]["cells"], way, count)[score] for seed in work.seeds] for score in SCORES
        }
        for data in work["data"]
        for way in WAYS
        for count in counts
    }
    gaps = {
        (data, other, count, score): paired(values[data, OURS, count][score], values[data, other, count][score])
        for data in work["data"]
        for other in WAYS
        if other != OURS
        for count in counts
        for score in SCORES
    }
    old = {data: [parts[f"{data}-{seed}"]["old_accuracy"] for seed in work.seeds] for data in work["data"]}
    return Findings(
        answer=_answer(work, gaps),
        lines=[_line(data, count, values, gaps) for data in work["data"] for count in counts],
        numbers={
            "old_accuracy": {data: estimate(own) for data, own in old.items()},
            "values": {
                f"{data} {way} {count}": {score: estimate(seeds) for score, seeds in own.items()}
                for (data, way, count), own in values.items()
            },
            "discounted_less": {
                f"{data} {other} {count} {score}": gap for (data, other, count, score), gap in gaps.items()
            },
            "chosen": chosen,
        },
        tables=[
            *(_table(data, score, values, counts) for data in work["data"] for score in SCORES),
            *(_against(data, gaps, counts) for data in work["data"]),
            Table(
                "Chosen on validation",
                ["", *(WAYS[way] for way in WAYS)],
                [[TITLES.get(data, data), *(_chosen(*chosen[data][way]) for way in WAYS)] for data in work["data"]],
                "The standard deviation of the normal prior (weight decay, for plain networks; of the last layer, for "
                "the old posterior), the learning rate, and how much the old data count: by NLL on pictures of the new "
                "classes that are neither trained on nor tested, with seeds of their own.",
            ),
        ],
        pictures=[
            Picture(
                work.figure("transfer", _picture(values, work["data"], counts)),
                "Accuracy and NLL on test pictures of the new classes by the number of labelled pictures of each: mean "
                "and 95% interval over the seeds.",
            )
        ],
        shortfalls=_shortfalls(work, gaps),
    )


def _choosing(work: Work, home: str, data: str, seed: int, cells: Sequence[Cell]) -> dict[str, Any]:
    return one_seed(work, home, data, seed, cells, choosing=True)


def _tried(work: Work, way: str) -> list[Setting]:
    """Scales of the new prior, learning rates, and powers of the old posterior where it has one."""
    powers = work["powers"] if way == OURS else [1.0]
    return [(scale, rate, power) for scale in work["scales"] for rate in work["rates"] for power in powers]


def _least_nll(rows: Sequence[Mapping[str, Any]], way: str, tried: Sequence[Setting]) -> Setting:
    """What is best on validation, over the counts and seeds that were tried."""

    def total(one: Setting) -> float:
        return sum(float(row["nll"]) for row in rows if row["way"] == way and tuple(row["setting"]) == one)

    return min(tried, key=total)


def _of(cells: Sequence[Mapping[str, Any]], way: str, count: int) -> Mapping[str, Any]:
    return next(one for one in cells if one["way"] == way and one["count"] == count)


def _line(data: str, count: int, values: Values, gaps: Mapping[Any, dict[str, Any]]) -> Line:
    said = {1: "better", -1: "worse", 0: "not to be told apart"}
    with_it, without = (percent(estimate(values[data, way, count]["accuracy"]), 1) for way in (OURS, "nothing"))
    tuned = percent(estimate(values[data, "tuned", count]["accuracy"]), 1)
    meaning = "; ".join(
        f"against {words} {said[settled(gaps[data, other, count, 'accuracy'])]} in accuracy "
        f"({between(gaps[data, other, count, 'accuracy'], '+.1f', 100)} points) and "
        f"{said[-settled(gaps[data, other, count, 'nll'])]} in NLL ({between(gaps[data, other, count, 'nll'], '+.3f')})"
        for other, words in (("nothing", "no old data"), ("tuned", "fine-tuning"))
    )
    return Line(
        f"{TITLES.get(data, data)}, {count} pictures of each new class",
        "named as a goal, not done",
        f"{with_it} with the old posterior, {without} without it, {tuned} by fine-tuning",
        meaning,
    )


def _table(data: str, score: str, values: Values, counts: Sequence[int]) -> Table:
    def form(own: dict[str, Any]) -> str:
        return percent(own, 1) if score == "accuracy" else written(own)

    rows = [
        [name, *(form(estimate(values[data, way, count][score])) for count in counts)] for way, name in WAYS.items()
    ]
    return Table(
        f"{TITLES.get(data, data)}: {'accuracy' if score == 'accuracy' else 'NLL'} on the new classes",
        ["", *(f"{count} of each" for count in counts)],
        rows,
    )


def _against(data: str, gaps: Mapping[Any, dict[str, Any]], counts: Sequence[int]) -> Table:
    rows = [
        [WAYS[other], *(f"{100 * gap['mean']:+.1f} ({_edges(gap)})" for gap in own)]
        for other in WAYS
        if other != OURS
        for own in [[gaps[data, other, count, "accuracy"] for count in counts]]
    ]
    return Table(
        f"{TITLES.get(data, data)}: the discounted old posterior less each other way, points of accuracy",
        ["less", *(f"{count} of each" for count in counts)],
        rows,
        "Paired over seeds, with 95% intervals.",
    )


def _chosen(scale: float, rate: float, power: float) -> str:
    return f"{scale:g}, {rate:g}" + ("" if power == 1 else f", power {power:g}")


def _edges(gap: Mapping[str, Any]) -> str:
    if "interval" not in gap:
        return "one seed"
    low, high = gap["interval"]
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def _answer(work: Work, gaps: Mapping[Any, dict[str, Any]]) -> str:
    cells = [(data, count) for data in work["data"] for count in work["counts"]]
    told = []
    for other, words in (
        ("nothing", "no old data"),
        ("start", "the old means as a start alone"),
        ("tuned", "fine-tuning"),
    ):
        better, worse = (
            {
                score: sum(settled(gaps[data, other, count, score]) == sign * side for data, count in cells)
                for score, side in (("accuracy", 1), ("nll", -1))
            }
            for sign in (1, -1)
        )
        told.append(
            f"against {words} it is better in {better['accuracy']} and worse in {worse['accuracy']} of {len(cells)} "
            f"cases by accuracy, {better['nll']} and {worse['nll']} by NLL"
        )
    few = work["old_examples"] is not None and work["old_examples"] < 10000
    scope = f"After {work['old_examples']:,} old pictures only, a trial of the code: " if few else ""
    return (
        f"{scope}Does the old posterior help as the prior? A case is a data set and a number of labelled pictures; "
        f"counting differences whose 95% interval leaves out zero, {'; '.join(told)}."
    )


def _shortfalls(work: Work, gaps: Mapping[Any, dict[str, Any]]) -> list[str]:
    told = [
        f"{TITLES.get(data, data)}, {count} of each: the old posterior is not shown to help against {words} "
        f"({between(gaps[data, other, count, 'accuracy'], '+.1f', 100)} points of accuracy)."
        for data in work["data"]
        for count in work["counts"]
        for other, words in (("nothing", "no old data"), ("tuned", "fine-tuning"))
        if settled(gaps[data, other, count, "accuracy"]) < 1
    ]
    if len(work.seeds) < 10:
        told.append(f"{len(work.seeds)} seeds; ten were asked for.")
    if work["old_examples"] is not None:
        told.append(f"The old classes were learnt from {work['old_examples']:,} pictures, not from all.")
    told.append("Settings were chosen on thousands of labelled pictures, which who has few labels does not have.")
    return told


def _picture(values: Values, data: Sequence[str], counts: Sequence[int]) -> Any:
    from matplotlib.ticker import NullLocator

    from bayesify.experiments.study_d_pictures import below
    from bayesify.plots import style

    colors = ("#1f2328", "#0072b2", "#3a9bd0", "#59636e", "#d55e00", "#c77c00", "#b5518c")
    figure = style.new_figure(8.4, 3.1 * len(data) + 0.5)
    for row, name in enumerate(data):
        for column, score in enumerate(SCORES):
            axes = figure.add_subplot(len(data), 2, 2 * row + column + 1)
            for number, (way, words) in enumerate(WAYS.items()):
                found = [estimate(values[name, way, count][score]) for count in counts]
                means = [one["mean"] for one in found]
                reach = [one["mean"] - one.get("interval", [one["mean"]])[0] for one in found]
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
            else:
                axes.set_yscale("log")
    below(figure)
    return figure


EXPERIMENT = Experiment(
    name="transfer",
    title="An old posterior as the new prior",
    study="E",
    question="Does a posterior from old classes, taken as the prior, help to learn new classes from few pictures?",
    run=run,
    quick={
        "data": ["mnist"],
        "old_examples": 1000,
        "old_epochs": 6,
        "tested": 500,
        "steps": 60,
        "draws": 10,
        "counts": [5, 20],
        "choose_at": [10],
        "choosing": 1,
        "scales": [1.0],
        "rates": [1e-2],
        "powers": [1e-2, 1e-4],
        "seeds": 2,
    },
    full={
        "data": ["mnist", "fashion-mnist"],
        "old_examples": 10000,
        "old_epochs": 8,
        "tested": None,
        "steps": 300,
        "draws": 50,
        "counts": [5, 10, 20, 50],
        "choose_at": [10],
        "choosing": 2,
        "scales": [0.3, 1.0],
        "rates": [3e-3, 1e-2],
        "powers": [1e-1, 1e-2, 1e-3, 1e-4, 1e-5],
        "seeds": 10,
    },
)
