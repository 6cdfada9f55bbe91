"""The numbers of a comparison: the headline, the few that stand out, the table, and how sure of them one can be.

With one seed the intervals say what so many test examples can tell apart; with several, means and standard errors over
the seeds say what another training run would change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesify import plots
from bayesify.evaluation.auroc_intervals import auroc_interval
from bayesify.evaluation.results import Seeds, Spread, doubts, share_sure
from bayesify.plots.quality import wilson_interval
from bayesify.plots.style import looks_of
from bayesify.report.blocks import Column, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report


@dataclass(frozen=True)
class Score:
    """A column of the table: how it is written, where a result has it, and what it says in a few words."""

    column: Column
    value: Callable[[MethodResult], float | None]
    meaning: str
    stands_out: bool = False


def classification_scores(at_least: float) -> list[Score]:
    """What a classifier is judged by."""
    return [
        Score(
            Column("accuracy", ".2%", better="higher", note="known"),
            lambda result: result.evaluation.accuracy,
            "share of the known test examples answered right",
            stands_out=True,
        ),
        Score(
            Column("NLL", ".3f", better="lower", note="nats"),
            lambda result: result.evaluation.nll,
            "surprise at the truth, in nats; lower is better",
        ),
        Score(
            Column("ECE", ".3f", better="lower", note="calibration"),
            lambda result: result.evaluation.ece,
            "distance between how sure and how often right; lower is better",
            stands_out=True,
        ),
        Score(
            Column("AUROC", ".3f", better="higher", note="unknown noticed"),
            lambda result: result.evaluation.auroc,
            "how well doubt tells unknown inputs from known ones; 0.5 is chance",
            stands_out=True,
        ),
        Score(
            Column("accuracy at 90%", ".2%", better="higher", note="surest 90% answered"),
            lambda result: result.evaluation.accuracy_at_90,
            "share right when the least sure tenth is withheld",
            stands_out=True,
        ),
        Score(
            Column("sure of unknown", ".1%", better="lower", note=f"at least {at_least:.0%} sure"),
            lambda result: share_sure(result, at_least),
            f"share of the unknown inputs answered with at least {at_least:.0%} confidence; lower is better",
            stands_out=True,
        ),
        _COST,
    ]


def regression_scores() -> list[Score]:
    """What a regression is judged by."""
    return [
        Score(
            Column("RMSE", ".3g", better="lower", note="units of the target"),
            lambda result: result.evaluation.rmse,
            "typical distance from the truth, in units of the target; lower is better",
            stands_out=True,
        ),
        Score(
            Column("MAE", ".3g", better="lower", note="units of the target"),
            lambda result: result.evaluation.mae,
            "mean distance from the truth, in units of the target; lower is better",
        ),
        Score(
            Column("NLL", ".3f", better="lower", note="nats"),
            lambda result: result.evaluation.nll,
            "surprise at the truth, in nats; lower is better",
            stands_out=True,
        ),
        Score(
            Column("CRPS", ".3g", better="lower", note="units of the target"),
            lambda result: result.evaluation.crps,
            "distance of the whole predicted distribution from the truth; lower is better",
        ),
        Score(
            Column("95% intervals", ".1%", note="targets inside"),
            lambda result: result.evaluation.coverage_95,
            "share of the targets inside the 95% intervals; best at 95%",
            stands_out=True,
        ),
        Score(
            Column("AUROC", ".3f", better="higher", note="unknown noticed"),
            lambda result: result.evaluation.auroc,
            "how well doubt tells unknown inputs from known ones; 0.5 is chance",
            stands_out=True,
        ),
        _COST,
    ]


_COST = Score(
    Column("cost", ".2g", "×", note="training time"),
    lambda result: result.cost,
    "training time over the plain network's",
)


def over_seeds(same: Sequence[MethodResult], value: Callable[[MethodResult], float | None]) -> Spread | None:
    """A score's mean over the results of one method with each seed; None where any has none."""
    values = [value(result) for result in same]
    known = [number for number in values if number is not None]
    return Spread.of(known) if len(known) == len(values) else None


def stand_out(report: Report, seeds: Seeds, scores: Sequence[Score]) -> None:
    """The best value of each of the few scores that matter most, and whose it is."""
    by_method = seeds.by_method()
    for score in (score for score in scores if score.stands_out):
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


def table(report: Report, seeds: Seeds, scores: Sequence[Score], caption: str) -> None:
    """All scores: a row for each method or, for a single one, a row for each score."""
    by_method = seeds.by_method()
    kept = [score for score in scores if any(over_seeds(same, score.value) is not None for same in by_method)]
    report.section("Scores")
    told = f" Means and standard errors over {len(seeds.runs)} seeds." if len(seeds.runs) > 1 else ""
    if len(by_method) == 1:
        rows = [
            [score.column.title, Written(_shown(over_seeds(by_method[0], score.value)), score.column), score.meaning]
            for score in kept
        ]
        report.table([Column("score"), Column("value"), Column("what it is")], rows, caption + told)
        return
    listed = [[same[0].label, *(_shown(over_seeds(same, score.value)) for score in kept)] for same in by_method]
    report.table([Column("method"), *(score.column for score in kept)], listed, f"{caption}{told} Bold is best.")


def seed_figure(report: Report, seeds: Seeds, chosen: Mapping[str, Score]) -> None:
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
        f"Ticks are the {len(seeds.runs)} seeds, markers their mean, lines two standard errors to either side: where "
        "lines overlap widely, another seed could turn the order round.",
        words,
        {"seeds": data},
    )


def interval_figure(report: Report, results: Sequence[MethodResult]) -> None:
    """Accuracy and, where there are unknown inputs, AUROC with the intervals that the test set allows."""
    if len(results) < 2:
        return
    looks = looks_of(results)
    accuracy = {result.label: result.evaluation.accuracy or 0.0 for result in results}
    spans: dict[str, tuple[float, float]] = {}
    for result in results:
        count = result.targets.numel()
        low, high = wilson_interval(accuracy[result.label] * count, count)
        spans[result.label] = (float(low), float(high))
    panels = [plots.method_comparison(accuracy, spans, label="accuracy on known", share=True, looks=looks)]
    data: dict[str, Any] = {"accuracy": _with_intervals(accuracy, spans)}
    words = ["Accuracy of each method with its 95% interval"]
    if all(result.unknown is not None for result in results):
        by = (results[0].evaluation.unknown_by or "entropy").replace("_", " ")
        areas = {result.label: auroc_interval(*doubts(result)) for result in results}
        values = {label: area[0] for label, area in areas.items()}
        reach = {label: (area[1], area[2]) for label, area in areas.items()}
        panels.append(plots.method_comparison(values, reach, label=f"AUROC for the unknown (by {by})", looks=looks))
        data["auroc"] = _with_intervals(values, reach)
        words.append("AUROC of each method with its 95% interval")
    report.figure(
        panels,
        "The same scores with 95% intervals: they show what this many test examples can tell apart, not how much "
        "another training run would differ.",
        words,
        data,
    )


def _shown(spread: Spread | None) -> Any:
    """A spread over one seed is a number."""
    return spread.mean if spread is not None and spread.standard_error is None else spread


def _with_intervals(values: Mapping[str, float], spans: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    return {label: {"value": value, "low": spans[label][0], "high": spans[label][1]} for label, value in values.items()}
