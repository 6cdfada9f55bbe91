"""What the page of `text` says: scores of every method, and each against the plain network seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.seed_statistics import between, estimate, paired, percent, settled, settled_together, written
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.text import parts
from bayesify_studies.experiments.text.fits import AS_PLAIN, METHODS, settings_of

HEADS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "auroc_entropy": "AUROC, entropy",
    "auroc_mutual_information": "AUROC, mutual information",
}
AUROC = "auroc_entropy"
# With a pretrained BERT (uncertainty-baselines): AUROC.
PUBLISHED = {"plain": 0.942, "mc-dropout": 0.951, "ensemble": 0.958}
_LOOKS = {"plain": "point", "tempered": "variational", "bag-of-words": "point"}
_SAID = {1: "better", -1: "worse", 0: "not significantly different"}
Told = Mapping[str, Mapping[str, Any]]
# By method and score, one value for each seed that all methods have.
Values = Mapping[str, Mapping[str, list[float]]]


def findings(work: Work, choices: Told, tested: Told) -> Findings:
    """The page's sentences, tables and numbers."""
    seeds, values = _values(work, tested)
    gaps = {method: paired(values[method][AUROC], values["plain"][AUROC]) for method in values if method != "plain"}
    best = max(values, key=lambda method: float(estimate(values[method][AUROC])["mean"]))
    chosen = {method: own for method, own in parts.chosen(choices).items() if method in values}
    return Findings(
        answer=_answer(values, gaps, best),
        lines=[_line(method, values, gaps) for method in values],
        numbers={
            "values": {
                method: {score: estimate(own) for score, own in each.items()} for method, each in values.items()
            },
            "auroc_less_plain": gaps,
            "best": best,
            "settled_together": settled_together(list(gaps.values())),
            "compared": len(gaps),
            "chosen": chosen,
            "seeds": len(seeds),
        },
        tables=[_scores(values), _settings(work, chosen)],
        pictures=[
            Picture(
                work.figure("text", _picture(values)),
                "Scores of each method. A dot is a seed, a bar the mean over seeds. The AUROC says how well the "
                "entropy of the prediction separates sentences without an intent from test sentences; higher is "
                "better.",
            )
        ],
        shortfalls=_shortfalls(work, choices, tested, seeds, gaps),
    )


def _values(work: Work, tested: Told) -> tuple[list[int], Values]:
    """The scores of every method that has any, over the seeds that all of these have."""
    of = {
        method: {seed: one for seed in range(work["seeds"]) if (one := _cell(tested, method, seed)) is not None}
        for method in METHODS
    }
    some = {method: own for method, own in of.items() if own}
    seeds = sorted(set.intersection(*(set(own) for own in some.values())))
    values = {
        method: {
            score: [float(own[seed][score]) for seed in seeds] for score in HEADS if all(score in own[s] for s in seeds)
        }
        for method, own in some.items()
    }
    return seeds, values


def _cell(tested: Told, method: str, seed: int) -> Mapping[str, Any] | None:
    part = tested.get(f"{'plain' if method == 'laplace' else method}-{seed}", {})
    own: Mapping[str, Any] = part.get("laplace", {}) if method == "laplace" else part
    return own if AUROC in own else None


def _answer(values: Values, gaps: Mapping[str, dict[str, Any]], best: str) -> str:
    plain, most = (f"{estimate(values[method][AUROC])['mean']:.3f}" for method in ("plain", best))
    if best == "plain":
        return f"The plain network finds sentences without an intent best, by entropy: AUROC {plain}."
    better = sum(settled(gap) == 1 for gap in gaps.values())
    return (
        f"Best at finding sentences without an intent: {METHODS[best]}, AUROC {most} (plain network: {plain}). "
        f"{better or 'None'} of {len(gaps)} methods {'are' if better > 1 else 'is'} significantly better than the "
        "plain network."
    )


def _line(method: str, values: Values, gaps: Mapping[str, dict[str, Any]]) -> Line:
    quoted = f"AUROC {PUBLISHED[method]} (pretrained BERT, not comparable)" if method in PUBLISHED else "none"
    own = (
        f"AUROC {written(estimate(values[method][AUROC]))}, accuracy {percent(estimate(values[method]['accuracy']), 1)}"
    )
    if method == "plain":
        return Line(METHODS[method], quoted, own, "the others are compared with it")
    gap = gaps[method]
    return Line(
        METHODS[method],
        quoted,
        own,
        f"AUROC {_SAID[settled(gap)]} than the plain network's ({between(gap, '+.3f')})"
        if settled(gap)
        else f"AUROC not significantly different from the plain network's ({between(gap, '+.3f')})",
    )


def _scores(values: Values) -> Table:
    rows = []
    for method in sorted(values, key=lambda one: -float(estimate(values[one][AUROC])["mean"])):
        own = {score: estimate(each) for score, each in values[method].items()}
        shown = [
            (percent(own[score], 1) if score == "accuracy" else written(own[score])) if score in own else "-"
            for score in HEADS
        ]
        rows.append([METHODS[method], *shown])
    return Table(
        "Every method",
        ["", *HEADS.values()],
        rows,
        "Accuracy, NLL and ECE on test sentences with an intent. A method without draws has no mutual information.",
    )


def _settings(work: Work, chosen: Mapping[str, Mapping[str, float]]) -> Table:
    names = {"rate": "learning rate", "scale": "prior's standard deviation", "p": "dropout rate", "temperature": "T"}
    rows = [
        [
            METHODS[method],
            ", ".join(f"{names[name]} {value:g}" for name, value in own.items()),
            "those of the plain network" if method in AS_PLAIN else str(len(settings_of(method)[: work["tried"]])),
        ]
        for method, own in chosen.items()
    ]
    return Table(
        "Chosen on validation sentences",
        ["", "setting", "settings tried"],
        rows,
        "Settings are chosen by NLL, with a seed that is not scored above. Sentences without an intent had no part in "
        "the "
        "choice. T is the weight of the KL; with 1 the objective is the ELBO.",
    )


def _picture(values: Values) -> Any:
    from bayesify.plots import style

    scores, names = ("accuracy", "nll", AUROC), list(values)
    figure = style.new_figure(9.4, 0.9 + 0.3 * len(names))
    panels = figure.subplots(1, len(scores), sharey=True)
    for axes, score in zip(panels, scores, strict=True):
        for row, method in enumerate(names):
            look, own = style.METHOD_LOOKS[_LOOKS.get(method, method)], values[method][score]
            axes.plot(own, [row] * len(own), "o", color=look.color, markersize=4, alpha=0.6)
            axes.plot([sum(own) / len(own)] * 2, [row - 0.3, row + 0.3], color=look.color, linewidth=2.5)
        axes.set_title(HEADS[score])
        axes.margins(x=0.15)
    panels[0].set_yticks(range(len(names)), [METHODS[method] for method in names])
    panels[0].invert_yaxis()
    return figure


def _shortfalls(
    work: Work, choices: Told, tested: Told, seeds: list[int], gaps: Mapping[str, dict[str, Any]]
) -> list[str]:
    both = {**choices, **tested}
    lines = [f"{name} failed: {one['failed']}." for name, one in both.items() if "failed" in one]
    late = [name for name, one in both.items() if "skipped" in one]
    if late:
        lines.append(f"Not computed, for lack of time: {', '.join(late)}.")
    return [
        *lines,
        (
            f"{len(gaps)} differences in AUROC are tested, each with its own 95% interval. After a Bonferroni "
            f"correction, {settled_together(list(gaps.values()))} of them are significant."
        ),
        (
            f"{len(seeds)} seeds. Every method is trained for {work['epochs']} epochs. Longer training might change "
            "the order."
        ),
        (
            f"One transformer ({work['blocks']} blocks of width {work['width']}), trained from scratch. The published "
            "numbers are for a pretrained BERT, so the two cannot be compared."
        ),
    ]
