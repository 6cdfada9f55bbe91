"""The numbers of a comparison: the large ones under the headline, the table, and their intervals.

With one seed the intervals show the error from a finite test set. With several seeds, means and standard errors over
them show how much another training run would differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesify import plots
from bayesify.evaluation.auroc_intervals import auroc_interval
from bayesify.evaluation.results import Seeds, Spread, share_confident, uncertainties
from bayesify.evaluation.scores import COST, HIGHLIGHTED, REPORTED, SCORES, Score
from bayesify.evaluation.seed_statistics import wilson_intervals
from bayesify.plots.style import looks_of
from bayesify.report.blocks import Column, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report


@dataclass(frozen=True)
class ReportedScore:
    """A score of the table, where a result has it, and whether it is one of the large numbers."""

    score: Score
    value: Callable[[MethodResult], float | None]
    highlighted: bool = False

    @property
    def sentence(self) -> str:
        """What the score is, in a few words."""
        return self.score.sentence

    @property
    def column(self) -> Column:
        """The score's column in the table."""
        score = self.score
        return Column(score.heading, score.form, score.unit, score.better, score.note)


def reported_scores(kind: str, at_least: float = 0.9) -> dict[str, ReportedScore]:
    """The scores of a report on a `kind` of problem, by name, in the order of the table."""
    found = {
        name: ReportedScore(SCORES[name], _from_evaluation(name), name in HIGHLIGHTED[kind]) for name in REPORTED[kind]
    }
    if kind == "classification":
        confident = Score(
            heading="sure of unknown",
            title="share of the unknown inputs with high confidence",
            form=".1%",
            better="lower",
            sentence=f"share of the unknown inputs with at least {at_least:.0%} confidence; lower is better",
            note=f"at least {at_least:.0%} sure",
        )
        found["share_confident"] = ReportedScore(confident, lambda result: share_confident(result, at_least), True)
    return found | {"cost": ReportedScore(COST, lambda result: result.cost)}


def _from_evaluation(name: str) -> Callable[[MethodResult], float | None]:
    return lambda result: getattr(result.evaluation, name)


def over_seeds(same: Sequence[MethodResult], value: Callable[[MethodResult], float | None]) -> Spread | None:
    """A score's mean over the results of one method with each seed; None where any has none."""
    values = [value(result) for result in same]
    known = [number for number in values if number is not None]
    return Spread.of(known) if len(known) == len(values) else None


def large_numbers(report: Report, seeds: Seeds, scores: Mapping[str, ReportedScore]) -> None:
    """The best value of each of the highlighted scores, and which method has it."""
    by_method = seeds.by_method()
    for score in (score for score in scores.values() if score.highlighted):
        values = {same[0].label: over_seeds(same, score.value) for same in by_method}
        known = {label: value for label, value in values.items() if value is not None}
        if len(known) < len(values):
            continue
        column = score.column
        if len(known) == 1:
            report.number(column.title, column.write(_shown(next(iter(known.values())))), column.note)
        elif column.better:
            best = (max if column.better == "higher" else min)(known.values(), key=lambda value: value.mean)
            text = column.write(best.mean)
            holders = [label for label, value in known.items() if column.write(value.mean) == text]
            rest = len(holders) - 1
            others = "" if not rest else " and another" if rest == 1 else f" and {rest} others"
            report.number(f"{column.better.replace('er', 'est')} {column.title}", text, f"{holders[0]}{others}")


def table(report: Report, seeds: Seeds, scores: Mapping[str, ReportedScore], caption: str) -> None:
    """All scores: a row for each method or, for a single one, a row for each score."""
    by_method = seeds.by_method()
    kept = [score for score in scores.values() if any(over_seeds(same, score.value) is not None for same in by_method)]
    report.section("Scores")
    over = f" Means and standard errors over {len(seeds.runs)} {seeds.unit}." if len(seeds.runs) > 1 else ""
    if len(by_method) == 1:
        rows = [
            [score.column.title, Written(_shown(over_seeds(by_method[0], score.value)), score.column), score.sentence]
            for score in kept
        ]
        report.table([Column("score"), Column("value"), Column("what it is")], rows, caption + over)
        return
    listed = [[same[0].label, *(_shown(over_seeds(same, score.value)) for score in kept)] for same in by_method]
    report.table([Column("method"), *(score.column for score in kept)], listed, f"{caption}{over} Bold is best.")


def seed_figure(report: Report, seeds: Seeds, chosen: Mapping[str, ReportedScore]) -> None:
    """Each seed's score and the mean, with two standard errors to either side."""
    if len(seeds.runs) < 2:
        return
    looks, by_method = looks_of(seeds.first), seeds.by_method()
    panels, words, data = [], [], {}
    for name, score in chosen.items():
        spreads = {same[0].label: over_seeds(same, score.value) for same in by_method}
        means = {label: spread.mean for label, spread in spreads.items() if spread is not None}
        if len(means) < len(spreads):
            continue
        reach = {
            label: (spread.mean - 2 * (spread.standard_error or 0.0), spread.mean + 2 * (spread.standard_error or 0.0))
            for label, spread in spreads.items()
            if spread is not None
        }
        share = score.column.form.endswith("%")
        if share:
            reach = {label: (max(low, 0.0), min(high, 1.0)) for label, (low, high) in reach.items()}
        each = {same[0].label: [score.value(result) or 0.0 for result in same] for same in by_method}
        panels.append(plots.method_comparison(means, reach, each=each, label=name, share=share, looks=looks))
        words.append(f"{name} of each method, by seed")
        data[score.column.title] = {
            label: {"mean": means[label], "standard_error": spread.standard_error, "seeds": each[label]}
            for label, spread in spreads.items()
            if spread is not None
        }
    report.figure(
        panels,
        f"Ticks are the {len(seeds.runs)} {seeds.unit}, markers their mean, lines two standard errors to either side. "
        "Where lines overlap widely, another seed could reverse the order.",
        words,
        {"seeds": data},
    )


def interval_figure(report: Report, results: Sequence[MethodResult]) -> None:
    """Accuracy and, where there are unknown inputs, AUROC with the intervals that the test set allows."""
    if len(results) < 2:
        return
    looks = looks_of(results)
    accuracy = {result.label: result.evaluation.accuracy or 0.0 for result in results}
    counts = [result.targets.numel() for result in results]
    right = [share * count for share, count in zip(accuracy.values(), counts, strict=True)]
    low, high = wilson_intervals(right, counts)
    spans = dict(zip(accuracy, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    panels = [plots.method_comparison(accuracy, spans, label="accuracy on known", share=True, looks=looks)]
    data: dict[str, Any] = {"accuracy": _with_intervals(accuracy, spans)}
    words = ["Accuracy of each method with its 95% interval"]
    if all(result.unknown is not None for result in results):
        by = (results[0].evaluation.unknown_by or "entropy").replace("_", " ")
        areas = {result.label: auroc_interval(*uncertainties(result)) for result in results}
        values = {label: area[0] for label, area in areas.items()}
        reach = {label: (area[1], area[2]) for label, area in areas.items()}
        panels.append(plots.method_comparison(values, reach, label=f"AUROC for the unknown (by {by})", looks=looks))
        data["auroc"] = _with_intervals(values, reach)
        words.append("AUROC of each method with its 95% interval")
    report.figure(
        panels,
        "The same scores with 95% intervals. They show the error from a finite test set, not how much another training "
        "run would differ.",
        words,
        data,
    )


def _shown(spread: Spread | None) -> Any:
    """A spread over one seed is a number."""
    return spread.mean if spread is not None and spread.standard_error is None else spread


def _with_intervals(values: Mapping[str, float], spans: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    return {label: {"value": value, "low": spans[label][0], "high": spans[label][1]} for label, value in values.items()}
