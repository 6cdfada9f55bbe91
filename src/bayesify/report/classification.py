"""The parts of a comparison of classifiers: scores, images with predictions, uncertainty, mistakes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import metrics, plots
from bayesify.evaluation.results import MethodResult, Seeds, list_by_label, plain_result
from bayesify.evaluation.selective import risk_coverage
from bayesify.plots import style
from bayesify.plots.predictions import histogram_of_scores
from bayesify.plots.style import looks_of
from bayesify.report import scoring, shown_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from bayesify.report.report import Report

_COVERAGES = tuple(round(0.1 * step, 1) for step in range(1, 11))


def scores(report: Report, seeds: Seeds, *, unknown_name: str, at_least: float) -> None:
    """The large numbers, the table, and two scores with their intervals."""
    results = seeds.first
    known, unknown = len(results[0].predictive), _unknown_count(results)
    listed = scoring.reported_scores("classification", at_least)
    scoring.large_numbers(report, seeds, listed)
    draws = list_by_label({result.label: str(result.predictive.draws) for result in results})
    others = f" and {unknown:,} of {unknown_name}" if unknown else ""
    timed = any(result.cost is not None for result in results)
    cost = " Cost is training time relative to the plain network." if timed else ""
    scoring.table(report, seeds, listed, f"{known:,} known test examples{others}. Draws: {draws}.{cost}")
    if len(seeds.runs) > 1:
        chosen = {"accuracy on known": listed["accuracy"]}
        chosen |= {"AUROC for the unknown": listed["auroc"]} if unknown else {"NLL (nats)": listed["nll"]}
        scoring.seed_figure(report, seeds, chosen)
    else:
        scoring.interval_figure(report, results)


def shown_predictions(
    report: Report,
    results: Sequence[MethodResult],
    known: tuple[Any, Any],
    unknown: Any,
    class_names: Sequence[str],
    *,
    unknown_name: str,
    at_least: float,
) -> None:
    """Two known and up to two unknown images with every method's prediction."""
    report.section(
        "One image at a time",
        "Bars are means over posterior draws, ticks are single draws. Ticks far apart mean that the method is unsure. "
        f"Below the dashed line at {at_least:.0%}, the prediction is “I do not know”.",
    )
    easy, hard = shown_examples.easiest_known(results), shown_examples.hardest_known(results)
    chosen = {
        easy: "The known image with the most confident right prediction",
        hard: "The known image with the least confident prediction",
    }
    all_panels: list[Axes] = []
    all_words: list[str] = []
    for index, reason in chosen.items():
        truth = class_names[int(known[1].reshape(-1)[index])]
        panels, words = shown_examples.predictions_for(
            results,
            known[0][index],
            index,
            class_names,
            unknown=False,
            at_least=at_least,
            caption=f"known: {style.shorten(truth, 14)}",
        )
        if len(results) > 1:
            report.figure(panels, f"{reason}, on average over the methods.", words)
        all_panels += panels
        all_words += words
    if len(results) == 1:
        report.figure(all_panels, f"{'. '.join(chosen.values())}.", all_words)
    if unknown is None or any(result.unknown is None for result in results):
        return
    plain = plain_result(results)
    surest, telling = shown_examples.surest_unknown(results), shown_examples.most_telling_unknown(results, at_least)
    why = {surest: f"{plain.label} is most confidently wrong on it"}
    if telling != surest:
        why[telling] = f"{plain.label} is at least {at_least:.0%} sure of it and the others are least sure"
    for place, reason in why.items():
        panels, words = shown_examples.predictions_for(
            results, unknown[place], place, class_names, unknown=True, at_least=at_least, caption="not in training"
        )
        report.figure(
            panels,
            f"One of {len(unknown):,} images of {unknown_name}, which was not in training. Chosen because {reason}. "
            "No label is right here: the right prediction is “I do not know”.",
            words,
        )


def uncertainty(report: Report, results: Sequence[MethodResult], *, unknown_name: str) -> None:
    """Entropies of known and unknown inputs, risk against coverage, reliability."""
    report.section("Does it know when it does not know?")
    curves = {result.label: risk_coverage(result.predictive, result.targets) for result in results}
    coverage = {
        label: {"coverage": _COVERAGES, "error": [curve.risk_at(share) for share in _COVERAGES], "aurc": curve.aurc}
        for label, curve in curves.items()
    }
    predictives = {result.label: result.predictive for result in results}
    alone = len(results) == 1
    looks = looks_of(results)
    size = (3.7, 2.9) if alone else (style.WIDTH, style.HEIGHT)
    histograms = [
        plots.entropy_histogram(
            result.predictive,
            result.unknown,
            title="" if alone else result.label,
            unknown_name=_short(unknown_name),
            axes=style.canvas(None, *(size if alone else (2.7, 2.3))),
        )
        for result in results
    ]
    judged = [
        plots.risk_coverage(curves, looks=looks, axes=style.canvas(None, *size)),
        plots.reliability(predictives, results[0].targets, looks=looks, axes=style.canvas(None, *size)),
    ]
    shares = {result.label: _histogram_data(result) for result in results}
    words = [f"Histogram of entropies of {result.label}" for result in results]
    more = ["Risk against coverage for " + ", ".join(curves), "Reliability diagram for " + ", ".join(curves)]
    data = {
        "risk_coverage": coverage,
        "reliability": {label: _reliability_data(results[0], predictive) for label, predictive in predictives.items()},
    }
    entropies, risks = _about_entropies(results), _about_risk(results, curves)
    if alone:
        report.figure([*histograms, *judged], "", [*words, *more], shares | data, [entropies, *risks])
        return
    report.figure(histograms, entropies, words, shares)
    report.figure(judged, "", more, data, risks)


def galleries(
    report: Report, results: Sequence[MethodResult], images: Any, class_names: Sequence[str], at_least: float
) -> None:
    """The least confident images and the confident mistakes of every method."""
    report.section("Worth a second look")
    alone = len(results) == 1
    least = [
        shown_examples.gallery(result, images, class_names, mistakes=False, named=not alone)[0] for result in results
    ]
    wrong = [
        shown_examples.gallery(result, images, class_names, mistakes=True, named=not alone)[0] for result in results
    ]
    unsure_panels = [panel for panel in least if panel is not None]
    mistake_panels = [panel for panel in wrong if panel is not None]
    counts = {result.label: _mistakes(result, at_least) for result in results}
    data = {label: {"mistakes": made, "confident_mistakes": sure} for label, (made, sure) in counts.items()}
    made = list_by_label({label: f"{made:,} and {sure:,}" for label, (made, sure) in counts.items()})
    first = "The known test images with the least confident predictions. Are they hard for you too?"
    second = f"Mistakes, most confident first. Number in total and with at least {at_least:.0%} confidence: {made}."
    words = [f"The images that {result.label} is least sure of" for result in results]
    more = [
        f"The most confident mistakes of {result.label}"
        for result, panel in zip(results, wrong, strict=True)
        if panel is not None
    ]
    if alone and mistake_panels:
        report.figure([*unsure_panels, *mistake_panels], "", [*words, *more], data, [first, second])
        return
    report.figure(unsure_panels, first, words)
    if mistake_panels:
        report.figure(mistake_panels, second, more, data)
    else:
        report.text("No method made a mistake on the known test images.")


def _about_entropies(results: Sequence[MethodResult]) -> str:
    largest = math.log(results[0].predictive.probs.shape[-1])
    opening = f"The entropy of each prediction. The largest possible one is {largest:.2f} nats."
    if all(result.unknown is None for result in results):
        medians = list_by_label({result.label: _median(result.predictive, largest) for result in results})
        return f"{opening} Inputs at the right are worth a second look. Median, in percent of the largest: {medians}."
    pairs = list_by_label(
        {
            r.label: f"{_median(r.predictive, largest)} and {_median(r.unknown, largest)}"
            for r in results
            if r.unknown is not None
        }
    )
    return (
        f"{opening} Known inputs should lie at the left, unknown inputs (hatched) at the right. Medians "
        f"of known and unknown inputs, in percent of the largest: {pairs}."
    )


def _about_risk(results: Sequence[MethodResult], curves: dict[str, Any]) -> tuple[str, str]:
    at_90 = list_by_label({label: f"{curve.risk_at(0.9):.1%}" for label, curve in curves.items()})
    confidence = {result.label: float(result.predictive.confidence.double().mean()) for result in results}
    overall = list_by_label({r.label: f"{confidence[r.label]:.1%} and {r.evaluation.accuracy:.1%}" for r in results})
    risk = (
        "Error of the most certain predictions. The longer a curve stays near zero, the more can be accepted without "
        f"mistakes. Error with 90% accepted (dashed line): {at_90}."
    )
    calibration = (
        "Accuracy against confidence. Below the diagonal a method is overconfident. Bars are 95% intervals; bins with "
        f"fewer than ten examples are left out. Mean confidence and accuracy: {overall}."
    )
    return risk, calibration


def _median(predictive: Any, largest: float) -> str:
    return f"{float(predictive.entropy.double().median()) / largest:.0%}"


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


def _short(unknown_name: str) -> str:
    return unknown_name if len(unknown_name) <= 18 else "unknown"


def images_of(inputs: Any) -> Any:
    """Images as an array `[n, ...]`, or None where the inputs are rows of a table."""
    if inputs is None:
        return None
    array = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs)
    return array if array.ndim in {3, 4} else None
