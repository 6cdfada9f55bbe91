"""What the page of `lora` says: each way to adapt, and Bayesian LoRA against the others seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bayesify.evaluation.seed_statistics import (
    between,
    estimate,
    paired,
    percent,
    settled,
    settled_together,
    written,
)
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.lora.adapting import SCORES, WAYS, Setting
from bayesify_studies.experiments.lora.network import ALPHA, RANK

# By way and score, one value for each seed.
Values = Mapping[str, Mapping[str, list[float]]]
OURS = "exact"
_HEADS = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}
# The colours of the methods.
_LOOKS = {
    "plain": "point",
    "ensemble": "ensemble",
    "laplace": "laplace",
    "last_layer": "laplace",
    "exact": "variational",
    "with_head": "variational",
    "tempered": "variational",
}
_SAID = {1: "better", -1: "worse", 0: "not significantly different"}
_SIGN = {"accuracy": 1, "nll": -1, "ece": -1}


def findings(
    work: Work, values: Values, chosen: Mapping[str, Setting], tried: Mapping[str, int], old: list[float]
) -> Findings:
    """The page's sentences, tables and numbers."""
    gaps = {
        (other, score): paired(values[OURS][score], values[other][score])
        for other in WAYS
        if other != OURS
        for score in SCORES
    }
    return Findings(
        answer=_answer(work, values),
        lines=[_line(other, values, gaps) for other in WAYS if other != OURS],
        numbers={
            "old_accuracy": estimate(old),
            "values": {way: {score: estimate(own[score]) for score in SCORES} for way, own in values.items()},
            "exact_less": {f"{other} {score}": gap for (other, score), gap in gaps.items()},
            "settled_together": settled_together(list(gaps.values())),
            "compared": len(gaps),
            "chosen": {way: list(setting) for way, setting in chosen.items()},
            "tried": dict(tried),
        },
        tables=[_scores(values), _settings(chosen, tried)],
        pictures=[
            Picture(
                work.figure("lora", picture(values)),
                "Scores on test texts of the new intents. A dot is a seed, a bar the mean over seeds. Higher accuracy, "
                "lower NLL and lower ECE are better.",
            )
        ],
        shortfalls=_shortfalls(work, list(gaps.values())),
    )


def _answer(work: Work, values: Values) -> str:
    best = {score: max(WAYS, key=partial(_goodness, values, score)) for score in SCORES}
    leaders = ", ".join(f"{WAYS[way]} ({_HEADS[score]})" for score, way in best.items())
    return f"Training uses {work['count']} texts of each new intent. The best mean scores are those of: {leaders}."


def _goodness(values: Values, score: str, way: str) -> float:
    return _SIGN[score] * _mean(values, way, score)


def _mean(values: Values, way: str, score: str) -> float:
    return float(estimate(values[way][score])["mean"])


def _line(other: str, values: Values, gaps: Mapping[Any, dict[str, Any]]) -> Line:
    own = ", ".join(
        f"{_HEADS[score]} {_mean(values, OURS, score):.3f} against {_mean(values, other, score):.3f}"
        for score in SCORES
    )
    meaning = "; ".join(
        f"{_HEADS[score]} {_SAID[_SIGN[score] * settled(gaps[other, score])]} ({between(gaps[other, score], '+.3f')})"
        for score in SCORES
    )
    return Line(f"Bayesian LoRA (ELBO), compared with {WAYS[other]}", "none", own, meaning)


def _scores(values: Values) -> Table:
    rows = [
        [
            name,
            percent(estimate(values[way]["accuracy"]), 1),
            written(estimate(values[way]["nll"])),
            written(estimate(values[way]["ece"])),
        ]
        for way, name in WAYS.items()
    ]
    return Table("Scores on test texts of the new intents", ["", "accuracy", "NLL", "ECE"], rows)


def _settings(chosen: Mapping[str, Setting], tried: Mapping[str, int]) -> Table:
    rows = [
        [WAYS[way], f"{scale:g}", f"{rate:g}", f"{temperature:g}" if temperature else "", str(tried[way])]
        for way, (scale, rate, temperature) in chosen.items()
    ]
    return Table(
        "Chosen on validation texts",
        ["", "prior's standard deviation", "learning rate", "temperature of the KL", "settings tried"],
        rows,
        "Settings are chosen by NLL, with a seed that is not scored. The ensemble and both Laplace approximations use "
        "the settings of LoRA. The Laplace approximations then choose the prior's scale by the marginal likelihood. "
        "`tempered`: the KL has less weight than in the ELBO. `and head`: the output layer has a posterior too.",
    )


def picture(values: Values) -> Any:
    """The scores of each way: seeds as dots, means as bars."""
    from bayesify.plots import style

    figure = style.new_figure(9.0, 3.2)
    names = list(WAYS)
    panels = figure.subplots(1, len(SCORES), sharey=True)
    for axes, score in zip(panels, SCORES, strict=True):
        for row, way in enumerate(names):
            look, own = style.METHOD_LOOKS[_LOOKS[way]], values[way][score]
            axes.plot(own, [row] * len(own), "o", color=look.color, markersize=4, alpha=0.6)
            axes.plot([_mean(values, way, score)] * 2, [row - 0.3, row + 0.3], color=look.color, linewidth=2.5)
        axes.set_title(_HEADS[score])
        axes.margins(x=0.15)
    panels[0].set_yticks(range(len(names)), [WAYS[way] for way in names])
    panels[0].invert_yaxis()
    return figure


def _shortfalls(work: Work, gaps: list[dict[str, Any]]) -> list[str]:
    return [
        (
            f"{len(gaps)} differences are tested, each with its own 95% interval. After a Bonferroni correction, "
            f"{settled_together(gaps)} of them are significant."
        ),
        (
            f"One transformer ({work['blocks']} blocks of width {work['width']}), one way to split the domains, rank "
            f"{RANK} and alpha {ALPHA:g}. The result says nothing about large language models."
        ),
        "Words that occur only in the new intents keep random embeddings. No method here adapts them.",
        f"{len(work.seeds)} seeds. The settings were chosen with one other seed.",
        (
            "Twelve results on validation texts were seen before these settings were fixed. They had other settings "
            "and fewer epochs. Nine came from an earlier form of this experiment, three from timing it."
        ),
    ]
