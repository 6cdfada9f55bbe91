"""Scores by strength of a corruption, for each method: their means, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify.evaluation.seed_statistics import estimate, percent, written
from bayesify_studies.experiments.cifar10.results import LOOKS, TITLES
from bayesify_studies.experiments.cifar10.scores import mean_scores
from bayesify_studies.experiments.framework.corruptions import STRENGTHS
from bayesify_studies.experiments.framework.findings import Table

HEADS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "scaled_nll": "NLL after scaling",
    "scaled_ece": "ECE after scaling",
}
SCALED = " Scaling is by one temperature, chosen on held-out images."
# By method: for each network, the scores at strength 0 (clean) to 5.
Curves = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]


def curve(one: Mapping[str, Any], kinds: Sequence[str]) -> list[dict[str, float]]:
    """The scores on clean images and at each strength, averaged over kinds."""
    scores = one["scores"]
    return [
        dict(scores["test"]),
        *(mean_scores([scores[f"{kind} {strength}"] for kind in kinds]) for strength in STRENGTHS),
    ]


def at(curves: Curves, method: str, strength: int, name: str) -> dict[str, Any]:
    """A score's mean at a strength, with its standard error over networks."""
    return estimate([one[strength][name] for one in curves[method]])


def mean(curves: Curves, method: str, strength: int, name: str) -> float:
    """A score's mean at a strength."""
    return float(at(curves, method, strength, name)["mean"])


def over(curves: Curves, method: str, name: str) -> dict[str, Any]:
    """A score's mean over the five strengths."""
    return estimate([sum(one[strength][name] for strength in STRENGTHS) / len(STRENGTHS) for one in curves[method]])


def numbers(curves: Curves) -> dict[str, Any]:
    """Every score by method: at each strength, and over all of them."""
    return {
        method: {
            name: {
                "strengths": [mean(curves, method, s, name) for s in (0, *STRENGTHS)],
                "all": over(curves, method, name),
            }
            for name in HEADS
        }
        for method in curves
    }


def table(title: str, curves: Curves, name: str, words: str = "") -> Table:
    """A score of every method by strength."""

    def shown(value: dict[str, Any]) -> str:
        return percent(value, 1) if name == "accuracy" else written(value, ".2f" if "nll" in name else ".3f")

    return Table(
        title,
        ["method", "clean", *map(str, STRENGTHS)],
        [[TITLES[method], *(shown(at(curves, method, s, name)) for s in (0, *STRENGTHS))] for method in curves],
        f"The columns are strengths of the corruption.{SCALED if name.startswith('scaled') else ''}{words}",
    )


def picture(curves: Curves) -> Any:
    """Accuracy, NLL and ECE by strength, the last two after temperature scaling too."""
    from bayesify.plots import style

    figure = style.new_figure(9.6, 3.4)
    strengths = [0, *STRENGTHS]
    for place, name in enumerate(("accuracy", "nll", "ece")):
        axes = figure.add_subplot(1, 3, place + 1)
        for method in curves:
            look, own = style.METHOD_LOOKS[LOOKS[method]], method in style.METHOD_LOOKS
            shown = [mean(curves, method, s, name) for s in strengths]
            # What has another's colour is dashed, with hollow marks.
            form, filling = (f"{look.marker}-", look.color) if own else (f"{look.marker}--", "none")
            axes.plot(
                strengths, shown, form, color=look.color, markerfacecolor=filling, markersize=4, label=TITLES[method]
            )
            if name != "accuracy":
                scaled = [mean(curves, method, s, f"scaled_{name}") for s in strengths]
                axes.plot(strengths, scaled, ":", color=look.color, linewidth=1)
        style.dress(axes, title=HEADS[name], x="strength (0: clean)", y="")
        if place == 0:
            axes.legend(frameon=False, fontsize=7)
    return figure
