"""The result of a comparison of classifiers in a sentence, which says where a difference is not significant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.evaluation.auroc_intervals import auroc_difference, auroc_interval
from bayesify.evaluation.results import Seeds, Spread, list_by_label, plain_result, share_confident, uncertainties
from bayesify.report import scoring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report


def headline(report: Report, seeds: Seeds, *, unknown_name: str, at_least: float) -> None:
    """Which method notices the unknown inputs best or, without unknown inputs, which is most accurate."""
    results = seeds.first
    if any(result.unknown is None for result in results):
        report.headline(_most_accurate(seeds))
        return
    several = len(seeds.runs) > 1
    report.headline(_notices_best_over_seeds(seeds, unknown_name) if several else _notices_best(results, unknown_name))
    confident = {}
    for same in seeds.by_method():
        share = scoring.over_seeds(same, lambda result: share_confident(result, at_least))
        confident[same[0].label] = f"{0.0 if share is None else share.mean:.0%}"
    report.headline(
        f"No label is right for {unknown_name}. Share that still gets one with at least {at_least:.0%} confidence: "
        f"{list_by_label(confident)}."
    )


def _most_accurate(seeds: Seeds) -> str:
    count = len(seeds.first[0].predictive)
    right = {same[0].label: scoring.over_seeds(same, lambda r: r.evaluation.accuracy) for same in seeds.by_method()}
    at_90 = {
        same[0].label: scoring.over_seeds(same, lambda r: r.evaluation.accuracy_at_90) for same in seeds.by_method()
    }
    best, surest = (max(part, key=lambda label: _mean(part[label])) for part in (right, at_90))
    several = f", the mean over {len(seeds.runs)} {seeds.unit}" if len(seeds.runs) > 1 else ""
    reached = f"{_mean(at_90[surest]):.1%}"
    withheld = f"with the least sure tenth withheld, {'it' if surest == best else surest} reaches {reached}"
    return f"{best} gets {_mean(right[best]):.1%} of {count:,} test examples right{several}; {withheld}."


def _notices_best(results: Sequence[MethodResult], unknown_name: str) -> str:
    by = {result.label: uncertainties(result) for result in results}
    areas = {label: auroc_interval(*pair) for label, pair in by.items()}
    best = max(results, key=lambda result: areas[result.label][0])
    area, low, high = areas[best.label]
    between = f"AUROC {area:.3f}, 95% interval {low:.3f} to {high:.3f}"
    if len(results) == 1:
        return f"{best.label} separates {unknown_name} from its training classes with {between}."
    plain = plain_result(results)
    if best is plain:
        return f"No method notices {unknown_name} better than {plain.label} ({between})."
    gain, error = auroc_difference(*by[best.label], *by[plain.label])
    others = [result for result in results if result not in {best, plain}]
    chance = "" if gain > 2 * error else " The difference is not significant."
    gains = {result.label: auroc_difference(*by[best.label], *by[result.label]) for result in others}
    tied = [label for label, (difference, its_error) in gains.items() if difference <= 2 * its_error]
    if tied and not chance:
        chance = f" There is no significant difference from {' or '.join(tied)}."
    return (
        f"{best.label} notices {unknown_name} best ({between}), against {areas[plain.label][0]:.3f} for {plain.label}."
        f"{chance}"
    )


def _notices_best_over_seeds(seeds: Seeds, unknown_name: str) -> str:
    by_method = {same[0].label: same for same in seeds.by_method()}
    areas = {label: [result.evaluation.auroc or 0.0 for result in same] for label, same in by_method.items()}
    means = {label: Spread.of(values) for label, values in areas.items()}
    best = max(means, key=lambda label: means[label].mean)
    plain = plain_result(seeds.first).label
    between = f"AUROC {_with_error(means[best])} over {len(seeds.runs)} {seeds.unit}"
    if len(means) == 1:
        return f"{best} separates {unknown_name} from its training classes with {between}."
    if best == plain:
        return f"No method notices {unknown_name} better than {plain} ({between})."
    # Seed by seed: what a seed does to all methods alike cancels.
    gain = Spread.of([ours - theirs for ours, theirs in zip(areas[best], areas[plain], strict=True)])
    significant = gain.standard_error is not None and gain.mean > 2 * gain.standard_error
    chance = "" if significant else f" The difference is not significant over {seeds.unit}."
    return f"{best} notices {unknown_name} best ({between}), against {_with_error(means[plain])} for {plain}.{chance}"


def _with_error(spread: Spread) -> str:
    return f"{spread.mean:.3f}" + ("" if spread.standard_error is None else f" ± {spread.standard_error:.3f}")


def _mean(spread: Spread | None) -> float:
    return 0.0 if spread is None else spread.mean
