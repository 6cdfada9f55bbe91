"""Tasks one after another: the posterior as the next prior, against fine-tuning, elastic weight consolidation and more.

Ten tasks of permuted MNIST share one network. Five tasks of split MNIST (two digits each) share all layers but the
last. Settings are chosen on training images that are kept aside, with a seed that is not scored. Accuracy is the mean
over all tasks after the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.learning_on import elbo, parts
from bayesify_studies.experiments.learning_on.sequences import WAYS
from bayesify_studies.experiments.learning_on.settings import FULL, QUICK

TARGET, TARGET_TASKS = 0.93, 10
# How each way is called on the page; the posterior is scored with and without its coresets.
TITLES = {
    "coreset": "posterior as the prior, with coresets",
    "posterior": "posterior as the prior",
    "ewc": "elastic weight consolidation",
    "fine-tuned": "fine-tuning",
    "joint": "all tasks at once",
}
MEANT = {
    "permuted": "Each task has its own fixed order of the pixels.",
    "split": "In each task the network tells two digits apart.",
}
PUBLISHED = {
    "coreset": "93% (Nguyen et al. 2018)",
    "posterior": "90% (Nguyen et al. 2018)",
    "ewc": "84% (Nguyen et al. 2018)",
}


def run(work: Work) -> Findings:
    settings = work.settings
    tried = parts.choices(settings, work.every(parts.pilots(settings, work.device)))
    best = parts.chosen(tried)
    told = work.every(parts.scored(settings, best, work.seeds, work.device))
    rows = {kind: {way: parts.networks(told[f"{kind}-{way}"]) for way in WAYS} for kind in parts.KINDS}
    values = {kind: _values(own) for kind, own in rows.items()}
    accuracy = {kind: {way: estimate(seeds) for way, seeds in own.items()} for kind, own in values.items()}
    ahead = {
        kind: {way: paired(own["coreset"], own[way]) for way in own if way != "coreset"} for kind, own in values.items()
    }
    tasks = settings["tasks"]
    return Findings(
        answer=_answer(accuracy),
        lines=[_line(way, accuracy["permuted"], ahead["permuted"], tasks) for way in TITLES],
        numbers={"accuracy": accuracy, "coresets_less": ahead, "chosen": best, "tasks": tasks},
        tables=[
            *(_table(kind, accuracy[kind], ahead[kind], rows[kind]) for kind in parts.KINDS),
            _choices(tried, best),
        ],
        pictures=[
            Picture(
                work.figure("learning-on", _picture(rows["permuted"])),
                "Permuted digits: accuracy after each task, as the mean over the tasks learned so far. Thick lines are "
                "means over seeds, thin lines single seeds.",
            )
        ],
        shortfalls=[*_shortfalls(accuracy, ahead, tasks), *_edges(settings["tries"], best)],
    )


def _values(rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[float]]:
    """Mean accuracies after the last task, one for each seed."""
    return {"coreset": [parts.mean_accuracy(one, rehearsed=True) for one in rows["posterior"]]} | {
        way: [parts.mean_accuracy(one, rehearsed=False) for one in own] for way, own in rows.items()
    }


def _answer(accuracy: Mapping[str, Any]) -> str:
    split = {way: percent(one, 1) for way, one in accuracy["split"].items()}
    return (
        f"Split digits: mean accuracy {split['coreset']} with coresets, {split['posterior']} without, {split['ewc']} "
        f"with elastic weight consolidation, {split['fine-tuned']} with fine-tuning, {split['joint']} with all tasks "
        "at once."
    )


def _line(way: str, accuracy: Mapping[str, Any], ahead: Mapping[str, Any], tasks: int) -> Line:
    if way == "coreset":
        reached = accuracy[way]["mean"] >= TARGET
        meaning = f"the target of {TARGET:.0%} is {'' if reached else 'not '}reached"
        meaning = meaning if tasks == TARGET_TASKS else f"{tasks} tasks: the target is for {TARGET_TASKS}"
    else:
        word = {1: "coresets are better", -1: "coresets are worse", 0: "no significant difference from coresets"}
        meaning = f"{word[settled(ahead[way])]}: {between(ahead[way], '+.1f', 100)} points"
    published = PUBLISHED.get(way, "none") if tasks == TARGET_TASKS else "none"
    return Line(f"permuted digits, {tasks} tasks, {TITLES[way]}", published, percent(accuracy[way], 1), meaning)


def _table(kind: str, accuracy: Mapping[str, Any], ahead: Mapping[str, Any], rows: Mapping[str, Any]) -> Table:
    def first_task(way: str) -> str:
        last = [
            one["rehearsed"][0] if way == "coreset" else one["accuracy"][-1][0]
            for one in rows["posterior" if way == "coreset" else way]
        ]
        return percent(estimate(last), 1)

    return Table(
        f"{kind} digits",
        ["way", "mean accuracy", "accuracy on the first task", "accuracy with coresets minus this one, points"],
        [
            [
                TITLES[way],
                percent(one, 1),
                first_task(way),
                between(ahead[way], "+.1f", 100) if way in ahead else "",
            ]
            for way, one in accuracy.items()
        ],
        f"{MEANT[kind]} Both accuracies are on test images, after the last task has been learned: the mean over all "
        "tasks, and that on the first task. Means and standard errors over seeds. Differences are paired over seeds.",
    )


def _choices(tried: Mapping[str, Mapping[str, float]], best: Mapping[str, Any]) -> Table:
    return Table(
        "Choices",
        ["way", "tried", "mean accuracy", ""],
        [
            [
                TITLES[way],
                ", ".join(f"{key} {value}" for key, value in json.loads(text).items()),
                f"{100 * value:.1f}%",
                "chosen" if json.loads(text) == best[way] else "",
            ]
            for way, own in tried.items()
            for text, value in own.items()
        ],
        "Settings are chosen by the accuracy on held-out training images of permuted digits, with a seed that is not "
        "scored. The posterior is judged with its coresets. Fine-tuning and all tasks at once use the network chosen "
        "for elastic weight consolidation. `prior` is the standard deviation of the first prior, `rho` the start of "
        "the "
        "widths before softplus, `rate` the learning rate, `strength` the factor of the penalty.",
    )


def _shortfalls(accuracy: Mapping[str, Any], ahead: Mapping[str, Any], tasks: int) -> list[str]:
    told, own = [], accuracy["permuted"]["coreset"]
    if tasks != TARGET_TASKS:
        told.append(f"{tasks} tasks: the target is for {TARGET_TASKS}.")
    elif own["mean"] < TARGET:
        told.append(f"The target of {TARGET:.0%} is missed by {100 * (TARGET - own['mean']):.1f} points.")
    told += [
        f"{kind} digits: {'worse' if settled(one) == -1 else 'not significantly better'} than {TITLES[way]} "
        f"({between(one, '+.1f', 100)} points)."
        for kind, gaps in ahead.items()
        for way, one in gaps.items()
        if way != "joint" and settled(one) != 1
    ]
    return [
        *told,
        "Only one number of epochs, one batch size and one starting width were tried.",
        (
            "The study trains the networks of all seeds side by side, with its own code. A test checks that its "
            "gradients are those of `Variational` with the estimator `local`. `Continual` trains one network at a time."
        ),
        "Split digits use the settings that were chosen on permuted digits.",
    ]


def _edges(tries: Mapping[str, list[dict[str, Any]]], best: Mapping[str, Any]) -> list[str]:
    """Numbers that were chosen at the edge of what was tried."""
    told = []
    for way, own in tries.items():
        for key in own[0]:
            values = sorted({tried[key] for tried in own})
            if len(values) > 2 and best[way][key] in {values[0], values[-1]}:
                word = "smallest" if best[way][key] == values[0] else "largest"
                told.append(f"{TITLES[way]}: the chosen {key}, {best[way][key]:g}, is the {word} that was tried.")
    return told


def _picture(rows: Mapping[str, list[dict[str, Any]]]) -> Any:
    # Sequences are computed where there is no package for figures.
    from bayesify.plots import style

    figure = style.new_figure(5.6, 3.6)
    axes = figure.add_subplot()
    for way, name in (("posterior", "variational"), ("ewc", "laplace"), ("fine-tuned", "point")):
        look = style.METHOD_LOOKS[name]
        curves = torch.tensor([[sum(row) / len(row) for row in one["accuracy"]] for one in rows[way]])
        at = torch.arange(1, curves.shape[1] + 1)
        for one in curves:
            axes.plot(at, 100 * one, color=look.color, linewidth=0.5, alpha=0.4)
        axes.plot(at, 100 * curves.mean(0), label=TITLES[way], **look.line(2.0))
    style.dress(axes, title="permuted digits", x="tasks learned", y="mean accuracy, %")
    style.legend(axes, "best")
    return figure


EXPERIMENT = Experiment(
    name="learning-on",
    title="Learning one task after another",
    study="beyond the studies",
    question="A network learns one task after another. Does it forget less if its posterior becomes the prior of the "
    "next task?",
    run=run,
    quick=QUICK,
    full=FULL,
    additions=(elbo.ADDITION,),
)
