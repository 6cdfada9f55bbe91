"""The parts of a comparison of classifiers: the headline, the table, and what there is to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import metrics, plots
from bayesify.plots import style
from bayesify.plots.answers import histogram_of_scores
from bayesify.plots.quality import wilson_interval
from bayesify.report import examples
from bayesify.report.intervals import auroc_difference, auroc_interval
from bayesify.report.report import Column, Report
from bayesify.report.results import MethodResult, looks_of, plain_result
from bayesify.selective import risk_coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COVERAGES = tuple(round(0.1 * step, 1) for step in range(1, 11))


def headline(report: Report, results: Sequence[MethodResult], *, unknown_name: str, at_least: float) -> None:
    """Which methods notice the unknown, or where there is none, how good and how honest they are."""
    count = len(results[0].predictive)
    best = max(results, key=lambda result: result.evaluation.accuracy or 0.0)
    if any(result.unknown is None for result in results):
        at_90 = max(results, key=lambda result: result.evaluation.accuracy_at_90 or 0.0)
        report.headline(
            f"{best.label} answers {best.evaluation.accuracy or 0.0:.1%} of {count:,} test examples right; "
            f"allowed to withhold one in ten, {at_90.label} reaches {at_90.evaluation.accuracy_at_90 or 0.0:.1%}."
        )
        return
    report.headline(_who_notices(results, unknown_name))
    sure = [f"{result.label} {_share_sure(result, at_least):.0%}" for result in results]
    report.headline(
        f"No answer can be right for {unknown_name}; the share of them for which each is at least {at_least:.0%} sure "
        f"of one all the same: {', '.join(sure)}."
    )


def scores(report: Report, results: Sequence[MethodResult], *, unknown_name: str, at_least: float) -> None:
    """The table, and the two scores that chance moves most with their intervals."""
    known, unknown = len(results[0].predictive), _unknown_count(results)
    columns = [
        Column("method"),
        Column("accuracy", ".2%", better="higher", note="known"),
        Column("NLL", ".3f", better="lower", note="nats"),
        Column("ECE", ".3f", better="lower", note="calibration"),
        Column("AUROC", ".3f", better="higher", note="unknown noticed"),
        Column("accuracy at 90%", ".2%", better="higher", note="surest 90% answered"),
        Column("sure of unknown", ".1%", better="lower", note=f"at least {at_least:.0%} sure"),
        Column("cost", ".2g", "×", note="training time"),
    ]
    rows = [
        [result.label, e.accuracy, e.nll, e.ece, e.auroc, e.accuracy_at_90, _share_sure(result, at_least), result.cost]
        for result in results
        for e in [result.evaluation]
    ]
    kept = [place for place in range(len(columns)) if place == 0 or any(row[place] is not None for row in rows)]
    draws = ", ".join(f"{result.label} {result.predictive.draws}" for result in results)
    told = f" and {unknown:,} of {unknown_name}" if unknown else ""
    report.section("Scores")
    report.table(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        f"{known:,} known test examples{told}. Bold is best. Draws: {draws}."
        + (" Cost is against the plain network." if any(result.cost is not None for result in results) else ""),
    )
    _score_intervals(report, results)


def shown_answers(
    report: Report,
    results: Sequence[MethodResult],
    known: tuple[Any, Any],
    unknown: Any,
    class_names: Sequence[str],
    *,
    unknown_name: str,
    at_least: float,
) -> None:
    """One known and one or two unknown images with every method's answer."""
    report.section(
        "One image at a time",
        f"Bars are the mean over draws, ticks the single draws: where they spread, the method is unsure. Below the "
        f"dashed line at {at_least:.0%} the answer is “I do not know”.",
    )
    index = examples.easiest_known(results)
    truth = class_names[int(known[1].reshape(-1)[index])]
    panels, words = examples.answers(
        results,
        known[0][index],
        index,
        class_names,
        unknown=False,
        at_least=at_least,
        caption=f"known: {style.shorten(truth, 14)}",
    )
    report.figure(panels, "A known image, the one that all methods together are surest of and get right.", words)
    if unknown is None or any(result.unknown is None for result in results):
        return
    plain = plain_result(results)
    surest, telling = examples.surest_unknown(results), examples.most_telling_unknown(results, at_least)
    why = {
        surest: f"{plain.label} is most confidently wrong on it",
        telling: f"{plain.label} is at least {at_least:.0%} sure of it and the others doubt it most",
    }
    for place, reason in why.items():
        panels, words = examples.answers(
            results, unknown[place], place, class_names, unknown=True, at_least=at_least, caption="never taught"
        )
        report.figure(
            panels,
            f"One of {len(unknown):,} images of {unknown_name}, which was never taught; chosen because {reason}. Every "
            "certain answer is wrong here; the honest one is “I do not know”.",
            words,
        )


def uncertainty(report: Report, results: Sequence[MethodResult], *, unknown_name: str) -> None:
    """Entropies of known and unknown inputs, risk against coverage, reliability."""
    looks = looks_of(results)
    report.section("Does it know when it does not know?")
    panels = [
        plots.entropy_histogram(
            result.predictive, result.unknown, title=result.label, unknown_name=_short(unknown_name)
        )
        for result in results
    ]
    both = any(result.unknown is not None for result in results)
    told = (
        "A method that notices the unknown keeps the two apart: known at the left, unknown (hatched) at the right."
        if both
        else "Most mass at the left means sure answers; what lies at the right is worth a second look."
    )
    report.figure(
        panels,
        f"Entropy of the predictive distribution, in nats. {told}",
        [f"Histogram of entropies of {result.label}" for result in results],
        {result.label: _histogram_data(result) for result in results},
    )
    curves = {result.label: risk_coverage(result.predictive, result.targets) for result in results}
    coverage = {
        label: {"coverage": _COVERAGES, "error": [curve.risk_at(share) for share in _COVERAGES], "aurc": curve.aurc}
        for label, curve in curves.items()
    }
    predictives = {result.label: result.predictive for result in results}
    report.figure(
        [plots.risk_coverage(curves, looks=looks), plots.reliability(predictives, results[0].targets, looks=looks)],
        "Left: the error among the surest answers; the further a curve stays at the floor, the more can be answered "
        "without mistakes. Right: how often answers are right against how sure they are; below the diagonal is "
        "overconfident, bars are 95% intervals, bins of fewer than ten examples are left out.",
        ["Risk against coverage for " + ", ".join(curves), "Reliability diagram for " + ", ".join(curves)],
        {
            "risk_coverage": coverage,
            "reliability": {label: _reliability_data(results[0], part) for label, part in predictives.items()},
        },
    )


def galleries(
    report: Report, results: Sequence[MethodResult], images: Any, class_names: Sequence[str], at_least: float
) -> None:
    """The least confident images and the confident mistakes of every method."""
    report.section("Worth a second look")
    least = [examples.gallery(result, images, class_names, mistakes=False)[0] for result in results]
    report.figure(
        [panel for panel in least if panel is not None],
        "The known test images that each method is least sure of. Are they hard for you too?",
        [f"The images that {result.label} is least sure of" for result in results],
    )
    wrong = [(result, examples.gallery(result, images, class_names, mistakes=True)[0]) for result in results]
    shown = [(result, panel) for result, panel in wrong if panel is not None]
    if not shown:
        report.text("No method made a single mistake on the known test images.")
        return
    counts = {result.label: _mistakes(result, at_least) for result in results}
    told = ", ".join(f"{label} {made:,} ({sure:,})" for label, (made, sure) in counts.items())
    report.figure(
        [panel for _, panel in shown],
        f"Mistakes, the most confident first. How many in all (and while at least {at_least:.0%} sure): {told}.",
        [f"The most confident mistakes of {result.label}" for result, _ in shown],
        {label: {"mistakes": made, "confident_mistakes": sure} for label, (made, sure) in counts.items()},
    )


def _who_notices(results: Sequence[MethodResult], unknown_name: str) -> str:
    by = {result.label: _doubts(result) for result in results}
    areas = {label: auroc_interval(*doubts) for label, doubts in by.items()}
    best = max(results, key=lambda result: areas[result.label][0])
    area, low, high = areas[best.label]
    between = f"AUROC {area:.3f}, 95% interval {low:.3f} to {high:.3f}"
    if len(results) == 1:
        return f"{best.label} tells {unknown_name} from what it was taught with {between}."
    plain = plain_result(results)
    if best is plain:
        return f"No method notices {unknown_name} better than {plain.label} ({between})."
    gain, error = auroc_difference(*by[best.label], *by[plain.label])
    others = [result for result in results if result not in {best, plain}]
    rest = "".join(f", {result.label} {areas[result.label][0]:.3f}" for result in others)
    chance = "" if gain > 2 * error else " The difference is within what chance would do."
    gains = {result.label: auroc_difference(*by[best.label], *by[result.label]) for result in others}
    level = [label for label, (more, doubt) in gains.items() if more <= 2 * doubt]
    if level and not chance:
        chance = f" So many examples cannot tell {' or '.join(level)} from it."
    return (
        f"{best.label} notices {unknown_name} best ({between}), against {areas[plain.label][0]:.3f} for {plain.label}"
        f"{rest}.{chance}"
    )


def _score_intervals(report: Report, results: Sequence[MethodResult]) -> None:
    if len(results) < 2:
        return
    looks = looks_of(results)
    accuracy = {result.label: result.evaluation.accuracy or 0.0 for result in results}
    spans: dict[str, tuple[float, float]] = {}
    for result in results:
        count = result.targets.numel()
        low, high = wilson_interval(accuracy[result.label] * count, count)
        spans[result.label] = (float(low), float(high))
    panels = [
        plots.method_comparison(accuracy, spans, label="accuracy on known", share=True, looks=looks),
    ]
    data: dict[str, Any] = {"accuracy": _with_intervals(accuracy, spans)}
    words = ["Accuracy of each method with its 95% interval"]
    if all(result.unknown is not None for result in results):
        by = (results[0].evaluation.unknown_by or "entropy").replace("_", " ")
        areas = {result.label: auroc_interval(*_doubts(result)) for result in results}
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


def _doubts(result: MethodResult) -> tuple[Any, Any]:
    assert result.unknown is not None
    by = result.evaluation.unknown_by or "entropy"
    known, unknown = (
        -part.certainty(by).double().reshape(len(part), -1).mean(1) for part in (result.predictive, result.unknown)
    )
    return known, unknown


def _share_sure(result: MethodResult, at_least: float) -> float | None:
    return None if result.unknown is None else float(result.unknown.accept(at_least=at_least).double().mean())


def _unknown_count(results: Sequence[MethodResult]) -> int:
    return max((len(result.unknown) for result in results if result.unknown is not None), default=0)


def _mistakes(result: MethodResult, at_least: float) -> tuple[int, int]:
    wrong = result.predictive.labels.cpu() != result.targets.cpu().reshape(result.predictive.labels.shape)
    sure = result.predictive.accept(at_least=at_least).cpu()
    return int(wrong.sum()), int((wrong & sure).sum())


def _histogram_data(result: MethodResult) -> dict[str, Any]:
    edges, heights = histogram_of_scores(result.predictive, result.unknown)
    return {"edges": edges, "known": heights[0], "unknown": heights[1] if len(heights) > 1 else None}


def _reliability_data(result: MethodResult, predictive: Any) -> dict[str, Any]:
    curve = metrics.reliability_curve(predictive.probs, result.targets)
    return {"confidence": curve.confidence, "accuracy": curve.accuracy, "count": curve.count}


def _with_intervals(values: Mapping[str, float], spans: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    return {label: {"value": value, "low": spans[label][0], "high": spans[label][1]} for label, value in values.items()}


def _short(unknown_name: str) -> str:
    return unknown_name if len(unknown_name) <= 18 else "unknown"


def images_of(inputs: Any) -> Any:
    """Images as an array that numbers can pick from, or None where these are no images but rows of a table."""
    if inputs is None:
        return None
    array = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs)
    return array if array.ndim in {3, 4} else None
