"""Every class of CIFAR-10 withheld in turn, and dropout's rate chosen over seeds.

Horses alone say little: how well a class is told depends on which classes look like it. Settings are those that
validation chose without horses, at equal budgets. The task is smaller than the page's, so that processor cores can do
it: its size is in the settings and on the page. Differences between methods are paired over the classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, written
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.fleets import said
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.study_c.unseen_networks import KINDS, cell, on_validation

NAME = "every_class"


def parts(work: Work) -> dict[str, tuple[Any, ...]]:
    """Each class and method, class by class, and the rates of dropout."""
    asked = work[NAME]
    fewer = _of_seeds(work, asked["seeds"])
    tasks: dict[str, tuple[Any, ...]] = {}
    for unseen in asked["classes"]:
        task = work["cifar"] | asked["task"] | {"unseen": unseen}
        for kind, setting in asked["kinds"].items():
            name = f"class-{unseen}-{kind}"
            tasks[name] = (scored, fewer, task, name, kind, setting)
    return tasks | {"dropout-rates": (rates, _of_seeds(work, asked["rate_seeds"]))}


def scored(work: Work, task: Mapping[str, Any], home: str, kind: str, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy on the nine known classes and AUROC for the unseen one, by seed."""
    found = cell(work, task, home, kind, setting)
    return {
        "seeds": [{"accuracy": one["accuracy"], "nll": one["nll"], "auroc": one["auroc"]} for one in found["seeds"]],
        "gradients": found["gradients"],
    }


def rates(work: Work) -> dict[str, Any]:
    """Dropout's settings by the NLL on validation, every seed."""
    settings, task = work[NAME]["dropout"], work["cifar"] | work[NAME]["task"]
    return {"settings": settings, "nll": [on_validation(work, task, "dropout", one) for one in settings]}


def tell(work: Work, found: Mapping[str, Any], _: Mapping[str, Any]) -> Added:
    """AUROC by class and method, the methods paired over classes; dropout's rates over seeds."""
    asked = work[NAME]
    whole = [name for name in asked["classes"] if all(f"class-{name}-{kind}" in found for kind in asked["kinds"])]
    tables: list[Table] = []
    kept: dict[str, Any] = {}
    if whole:
        told, kept = _classes(asked, whole, found)
        tables.append(told)
    if "dropout-rates" in found:
        part = found["dropout-rates"]
        means = [estimate(values) for values in part["nll"]]
        best = min(range(len(means)), key=lambda number: means[number]["mean"])
        tables.append(
            Table(
                "Dropout's rate, chosen over seeds",
                ["setting", "validation NLL", "lowest seed", ""],
                [
                    [
                        f"{setting['epochs']} epochs, {said(setting)}",
                        written(mean),
                        f"{min(mean['values']):.3f}",
                        "best" if number == best else "",
                    ]
                    for number, (setting, mean) in enumerate(zip(part["settings"], means, strict=True))
                ],
                f"{_size(asked)} The choice above was made with one seed each.",
            )
        )
        kept = {
            **kept,
            "dropout_nll": {f"{one['p']:g}": mean for one, mean in zip(part["settings"], means, strict=True)},
        }
    missing = [name for name in asked["classes"] if name not in whole]
    short = [f"These classes were not withheld in turn: {', '.join(missing)}."] if missing else []
    return Added(kept, tables=tables, shortfalls=short)


def _of_seeds(work: Work, seeds: int) -> Work:
    """The same work with another number of seeds."""
    return Work(work.folder, work.settings | {"seeds": seeds}, device=work.device, progress=work.progress)


def _size(asked: Mapping[str, Any]) -> str:
    """How large the trainings are, in a sentence or two."""
    epochs = asked["kinds"]["variational"]["epochs"]
    few = f"{asked['task']['examples']:,} training images, " if asked["task"].get("examples") else ""
    seeds = "one seed" if asked["seeds"] == 1 else f"{asked['seeds']} seeds"
    plain = asked["kinds"]["plain"]["epochs"]
    return f"{few}a budget of {epochs} epochs (a plain network stops after {plain}), {seeds} a class."


def _classes(asked: Mapping[str, Any], whole: Sequence[str], found: Mapping[str, Any]) -> tuple[Table, dict[str, Any]]:
    kinds = list(asked["kinds"])

    def of(name: str, kind: str, score: str) -> list[float]:
        seeds = found[f"class-{name}-{kind}"]["seeds"]
        return [one["auroc"]["entropy"] if score == "auroc" else one[score] for one in seeds]

    means = {
        score: {kind: [estimate(of(name, kind, score))["mean"] for name in whole] for kind in kinds}
        for score in ("auroc", "accuracy")
    }
    rows = [[name, *(f"{means['auroc'][kind][n]:.3f}" for kind in kinds)] for n, name in enumerate(whole)]
    rows.append(["mean of the classes", *(f"{estimate(means['auroc'][kind])['mean']:.3f}" for kind in kinds)])
    rows.append(["accuracy on known classes", *(percent(estimate(means["accuracy"][kind]), 1) for kind in kinds)])
    others = [kind for kind in kinds if kind != "variational"]
    less = {kind: paired(means["auroc"]["variational"], means["auroc"][kind]) for kind in others}
    than = {1: "better than", -1: "worse than", 0: "not significantly different from"}
    compared = "; ".join(
        f"{than[settled(one)]} {KINDS[kind]} ({one['mean']:+.3f}, {between(one, '+.3f')})" for kind, one in less.items()
    )
    return Table(
        "Every class withheld in turn: AUROC by entropy",
        ["unseen class", *(KINDS[kind] for kind in kinds)],
        rows,
        f"{_size(asked)} The settings were chosen without horses. Over the {len(whole)} classes, variational networks "
        f"are {compared}. Intervals are over classes.",
    ), {
        "auroc": {kind: estimate(values) for kind, values in means["auroc"].items()},
        "accuracy": {kind: estimate(values) for kind, values in means["accuracy"].items()},
        "variational_less": less,
        "classes": list(whole),
        "examples": asked["task"].get("examples"),
        "epochs": asked["kinds"]["variational"]["epochs"],
    }


ADDITION = Addition(NAME, parts, tell, whole=False)
