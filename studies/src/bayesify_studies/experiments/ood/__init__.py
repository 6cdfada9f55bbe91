"""Do networks notice inputs of a kind that they were not trained on, and by which score?

Every method at its default settings, as `bayesify train` makes it, and every score of `bayesify unknown`. Nothing is
chosen on unknown inputs: scores and thresholds come from the training data alone.

    mnist    a convolutional network on 60,000 digits, shown Fashion-MNIST, notMNIST, uniform noise
             and digits that are turned by 90 degrees
    digits   the small network of the 8x8 digits, shown scribbles and letters that are drawn as in the studio
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify.methods.cards import CARDS
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.ood import parts
from bayesify_studies.experiments.ood.cells import DEFAULT, KNOWN, SCORES
from bayesify_studies.experiments.ood.settings import FULL, QUICK

TITLES = {
    "fashion-mnist": "Fashion-MNIST",
    "notmnist": "notMNIST",
    "noise": "noise",
    "rotations": "turned digits",
    "scribbles": "scribbles",
    "letters": "letters",
    KNOWN: "known digits",
}
GOALS = {"fashion-mnist": 0.985, "notmnist": 0.975}
Told = Mapping[str, Mapping[str, Any]]
Cell = tuple[str, str]
Good = Mapping[str, Mapping[int, Mapping[str, Any]]]
OF_INPUTS = ("knn", "mahalanobis")  # distances between pixels, which need no network
PLANNED = 20  # seeds
BAD = 0.9  # below this accuracy a network has not learned its digits


def run(work: Work) -> Findings:
    told = work.every(parts.cells(work.settings, work.device))
    good = {problem: _good(work, told, problem) for problem in work["problems"]}
    areas = {
        (problem, kind): _areas(good[problem], kind)
        for problem, own in work["problems"].items()
        for kind in own["unknown"]
    }
    best = {key: max(own, key=lambda cell: own[cell]["mean"]) for key, own in areas.items()}
    return Findings(
        answer=_answer(areas),
        lines=[line for key, own in areas.items() for line in _lines(key, own)],
        numbers={
            "auroc": {kind: _nested(own) for (_, kind), own in areas.items()},
            "best": {kind: list(cell) for (_, kind), cell in best.items()},
        },
        tables=[
            *(_table(key, own, work) for key, own in areas.items()),
            *(_accepted(work, good[problem], problem) for problem in work["problems"]),
            *(_with_confidence(work, good[problem], problem) for problem in work["problems"]),
        ],
        pictures=[
            Picture(
                work.figure("ood", _picture(areas, work["methods"])),
                "Mean AUROC of every score and method: how well it separates unknown inputs from known ones. Higher is "
                "better.",
            )
        ],
        shortfalls=[*_shortfalls(work, areas, best), *_failures(work, good)],
        reading="± is the standard error over seeds. A difference is significant if the 95% t interval of the paired "
        "differences over seeds excludes zero. A seed has its own networks, known test images and unknown inputs.",
    )


def _good(work: Work, told: Told, problem: str) -> Good:
    """The cells of each method by seed, without those that diverged."""
    seeds = range(work["problems"][problem]["seeds"])
    found = {
        method: {seed: told[parts.part_name(problem, method, seed)] for seed in seeds} for method in work["methods"]
    }
    return {method: {seed: one for seed, one in own.items() if "failed" not in one} for method, own in found.items()}


def _areas(good: Good, kind: str) -> dict[Cell, Any]:
    """The AUROC of every method and score for one kind of unknown inputs; `by_seed` has the seeds."""
    found: dict[Cell, Any] = {}
    for method, own in good.items():
        each = {seed: one["auroc"][kind] for seed, one in own.items()}
        for score in SCORES:
            if each and all(score in one for one in each.values()):
                values = {seed: one[score] for seed, one in each.items()}
                found[method, score] = estimate(list(values.values())) | {"by_seed": values}
    return found


def _gap(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The difference, over the seeds that both have."""
    both = [seed for seed in first["by_seed"] if seed in second["by_seed"]]
    return paired([first["by_seed"][seed] for seed in both], [second["by_seed"][seed] for seed in both])


def _nested(areas: Mapping[Cell, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (method, score), one in areas.items():
        found.setdefault(method, {})[score] = {key: value for key, value in one.items() if key != "by_seed"}
    return found


def _named(cell: Cell) -> str:
    return f"{CARDS[cell[0]].title} with {_said(cell[1])}"


def _said(score: str) -> str:
    return score.replace("_", " ")


def _answer(areas: Mapping[Cell, Mapping[Cell, Any]]) -> str:
    each = ", ".join(
        f"{TITLES[kind]} {own['variational', DEFAULT]['mean']:.3f} and {own['variational', 'entropy']['mean']:.3f}"
        for (_, kind), own in areas.items()
    )
    return f"AUROC of the default check ({DEFAULT}) and of the variational network's entropy: {each}."


def _lines(key: Cell, own: Mapping[Cell, Any]) -> list[Line]:
    """The best pair of all, and the best whose score needs the network."""
    of_network = {cell: one for cell, one in own.items() if cell[1] not in OF_INPUTS}
    return [_line(key, own, "best method and score"), _line(key, of_network, "best of the scores that need a network")]


def _line(key: Cell, own: Mapping[Cell, Any], which: str) -> Line:
    kind, goal = key[1], GOALS.get(key[1])
    cell = max(own, key=lambda one: own[one]["mean"])
    value = own[cell]["mean"]
    reached = "" if goal is None else f"goal {'reached' if value >= goal else f'missed by {goal - value:.3f}'}; "
    second = max((other for other in own if other[1] != cell[1]), key=lambda other: own[other]["mean"])
    word = "better than" if settled(_gap(own[cell], own[second])) == 1 else "not significantly different from"
    return Line(
        f"AUROC for {TITLES[kind]}, {which}: {_named(cell)}",
        "none" if goal is None else f"at least {goal} (goal)",
        written(own[cell], ".3f"),
        f"{reached}{word} the next best score ({_named(second)}, {written(own[second], '.3f')})",
    )


def _table(key: Cell, own: Mapping[Cell, Any], work: Work) -> Table:
    problem, kind = key
    return Table(
        f"AUROC: {problem}, {TITLES[kind]}",
        ["", *map(_said, SCORES)],
        [
            [
                CARDS[method].title,
                *(written(own[method, score], ".3f") if (method, score) in own else "-" for score in SCORES),
            ]
            for method in work["methods"]
        ],
        f"{_seeds(work, problem)} AUROC of known test images against unknown inputs. `knn` and `mahalanobis` are "
        "distances to "
        "the training images, in pixels or in the last layer. A plain network has no draws, so two scores are missing.",
    )


def _accepted(work: Work, good: Good, problem: str) -> Table:
    kinds = [KNOWN, *work["problems"][problem]["unknown"]]
    cells = [one["accepted"] for one in good["variational"].values()]
    return Table(
        f"Accepted at a coverage of {work['coverage']:.0%}: {problem}",
        ["score", *(TITLES[kind] for kind in kinds)],
        [
            [_said(score), *(percent(estimate([one[kind][score] for one in cells]), 1) for kind in kinds)]
            for score in SCORES
        ],
        f"{_seeds(work, problem)} Share of the inputs that the variational network accepts. Each threshold accepts "
        f"{work['coverage']:.0%} of the training inputs. For unknown inputs, lower is better.",
    )


def _seeds(work: Work, problem: str) -> str:
    return f"{work['problems'][problem]['seeds']} seeds."


def _with_confidence(work: Work, good: Good, problem: str) -> Table:
    kinds = [KNOWN, *work["problems"][problem]["unknown"]]
    rows = []
    for method in work["methods"]:
        cells = list(good[method].values())
        if not cells:
            continue
        lost = paired([one["sure"][KNOWN] for one in cells], [one["both"][KNOWN] for one in cells])
        shares = [
            f"{percent(estimate([one['sure'][kind] for one in cells]), 1)} → "
            f"{percent(estimate([one['both'][kind] for one in cells]), 1)}"
            for kind in kinds
        ]
        accuracy = percent(estimate([one["accuracy"] for one in cells]), 1)
        rows.append([CARDS[method].title, len(cells), accuracy, *shares, f"{100 * lost['mean']:.1f} points"])
    return Table(
        f"A confidence of {work['sure']:.0%}, with and without the default check: {problem}",
        ["", "seeds", "accuracy", *(TITLES[kind] for kind in kinds), "known digits lost"],
        [list(map(str, row)) for row in rows],
        f"Share of the inputs that are accepted because the confidence is at least {work['sure']:.0%}. After the "
        f"arrow: the share that the check `{DEFAULT}` on the inputs accepts too.",
    )


def _failures(work: Work, good: Mapping[str, Good]) -> list[str]:
    """Trainings that diverged, and networks that did not learn the known digits."""
    told = []
    for problem, own in good.items():
        asked = work["problems"][problem]["seeds"]
        for method, cells in own.items():
            title = CARDS[method].title
            if len(cells) < asked:
                told.append(
                    f"{problem}: {asked - len(cells)} of {asked} trainings of {title} diverged at its defaults."
                )
            poor = sum(one["accuracy"] < BAD for one in cells.values())
            if poor:
                told.append(
                    f"{problem}: {poor} of {len(cells)} networks of {title} did not learn the digits at its defaults."
                )
    return told


def _shortfalls(work: Work, areas: Mapping[Cell, Mapping[Cell, Any]], best: Mapping[Cell, Cell]) -> list[str]:
    missed = [
        f"{TITLES[key[1]]}: the goal of {GOALS[key[1]]} is missed by {GOALS[key[1]] - own[best[key]]['mean']:.3f}."
        for key, own in areas.items()
        if key[1] in GOALS and own[best[key]]["mean"] < GOALS[key[1]]
    ]
    entropy = [
        f"{TITLES[kind]}: the entropy of the variational network is {_compared(own)}."
        for (_, kind), own in areas.items()
    ]
    few = [
        f"{problem}: {own['seeds']} seeds, where {PLANNED} were planned."
        for problem, own in work["problems"].items()
        if own["seeds"] < PLANNED
    ]
    return [
        *missed,
        *entropy,
        (
            "The best method and score were selected after their AUROC was seen. The default check and the entropy "
            "were chosen before."
        ),
        "The distances between pixels are the same for all methods. They say little about large images.",
        "All methods have the same number of epochs, which is few for the samplers. None was tuned.",
        *few,
    ]


def _compared(own: Mapping[Cell, Any]) -> str:
    gap = _gap(own["variational", "entropy"], own["variational", DEFAULT])
    word = {1: "better than", -1: "worse than", 0: "not significantly different from"}[settled(gap)]
    return f"{word} the default check ({between(gap, '+.3f')})"


def _picture(areas: Mapping[Cell, Mapping[Cell, Any]], methods: Sequence[str]) -> Any:
    from bayesify.plots import style

    columns = min(3, len(areas))
    rows = -(-len(areas) // columns)
    figure = style.new_figure(3.4 * columns, 3.4 * rows + 0.5)
    for place, ((_, kind), own) in enumerate(areas.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        for method in methods:
            look = style.METHOD_LOOKS[method]
            shown = [
                (number, own[method, score]["mean"]) for number, score in enumerate(SCORES) if (method, score) in own
            ]
            axes.plot(*zip(*shown, strict=True), look.marker, color=look.color, markersize=4, label=CARDS[method].title)
        axes.set_xticks(range(len(SCORES)), [_said(score) for score in SCORES], rotation=60, ha="right", fontsize=7)
        style.dress(axes, title=TITLES[kind], x="", y="" if place % columns else "AUROC")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    name="ood",
    title="Unknown inputs",
    study="beyond the studies",
    question="Do networks notice inputs of a kind that they were not trained on, and which score finds them best?",
    run=run,
    quick=QUICK,
    full=FULL,
)
