"""The result of a comparison of classifiers in a sentence, which says where a difference is not significant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.evaluation.auroc_intervals import auroc_difference, auroc_interval
from bayesify.evaluation.results import Seeds, Spread, list_by_label, plain_result, share_confident, uncertainties
from bayesify.report import scoring

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        f"No label is right for {unknown_name}. Share of these inputs with at least {at_least:.0%} confidence: "
        f"{list_by_label(confident)}."
    )


def _most_accurate(seeds: Seeds) -> str:
    count = len(seeds.first[0].predictive)
    right = {same[0].label: scoring.over_seeds(same, lambda r: r.evaluation.accuracy) for same in seeds.by_method()}
    at_90 = {
        same[0].label: scoring.over_seeds(same, lambda r: r.evaluation.accuracy_at_90) for same in seeds.by_method()
    }
    several = f", the mean over {len(seeds.runs)} {seeds.unit}" if len(seeds.runs) > 1 else ""
    bests, share = _best_as_shown(right)
    surests, reached = _best_as_shown(at_90)
    who = ("it" if len(bests) == 1 else "each") if surests == bests else " and ".join(surests)
    gets = "gets" if len(surests) == 1 or surests == bests else "get"
    whose = "its" if len(surests) == 1 else "their"
    return (
        f"{' and '.join(bests)} {'gets' if len(bests) == 1 else 'get'} {share} of {count:,} test examples right"
        f"{several}. Among {whose} 90% most certain predictions, {who} {gets} {reached} right."
    )


def _best_as_shown(values: Mapping[str, Spread | None]) -> tuple[list[str], str]:
    """The methods with the highest share as it is printed, and that share."""
    shown = {label: f"{_mean(value):.1%}" for label, value in values.items()}
    best = shown[max(values, key=lambda label: _mean(values[label]))]
    return [label for label, text in shown.items() if text == best], best


def _notices_best(results: Sequence[MethodResult], unknown_name: str) -> str:
    by = {result.label: uncertainties(result) for result in results}
    areas = {label: auroc_interval(*pair) for label, pair in by.items()}
    best = max(results, key=lambda result: areas[result.label][0])
    area, low, high = areas[best.label]
    between = f"AUROC {area:.3f}, 95% interval {low:.3f} to {high:.3f}"
    if len(results) == 1:
        return f"{best.label} separates {unknown_name} from its training classes with {between}."
    plain = plain_result(results)
    level = [result for result in results if f"{areas[result.label][0]:.3f}" == f"{area:.3f}"]
    if plain in level:
        _, low, high = areas[plain.label]
        between = f"AUROC {area:.3f}, 95% interval {low:.3f} to {high:.3f}"
        return f"No method notices {unknown_name} better than {plain.label} ({between})."
    gain, error = auroc_difference(*by[best.label], *by[plain.label])
    others = [result for result in results if result is not plain and result not in level]
    chance = "" if gain > 2 * error else " The difference is not significant."
    gains = {result.label: auroc_difference(*by[best.label], *by[result.label]) for result in others}
    tied = [label for label, (difference, its_error) in gains.items() if difference <= 2 * its_error]
    if tied and not chance:
        chance = f" There is no significant difference from {' or '.join(tied)}."
    if len(level) > 1:
        spans = " and ".join("{:.3f} to {:.3f}".format(*areas[result.label][1:]) for result in level)
        between = f"AUROC {area:.3f}, 95% intervals {spans}"
    return (
        f"{_notice([result.label for result in level], unknown_name)} ({between}), against "
        f"{areas[plain.label][0]:.3f} for {plain.label}.{chance}"
    )


def _notice(labels: Sequence[str], unknown_name: str) -> str:
    """Who notices the unknown inputs best: one method, or several whose numbers are the same as printed."""
    return f"{' and '.join(labels)} {'notices' if len(labels) == 1 else 'notice'} {unknown_name} best"


def _notices_best_over_seeds(seeds: Seeds, unknown_name: str) -> str:
    by_method = {same[0].label: same for same in seeds.by_method()}
    areas = {label: [result.evaluation.auroc or 0.0 for result in same] for label, same in by_method.items()}
    means = {label: Spread.of(values) for label, values in areas.items()}
    best = max(means, key=lambda label: means[label].mean)
    plain = plain_result(seeds.first).label
    between = f"AUROC {_with_error(means[best])} over {len(seeds.runs)} {seeds.unit}"
    if len(means) == 1:
        return f"{best} separates {unknown_name} from its training classes with {between}."
    level = [label for label, spread in means.items() if f"{spread.mean:.3f}" == f"{means[best].mean:.3f}"]
    if plain in level:
        between = f"AUROC {_with_error(means[plain])} over {len(seeds.runs)} {seeds.unit}"
        return f"No method notices {unknown_name} better than {plain} ({between})."
    if len(level) > 1:
        each = " and ".join(_with_error(means[label]) for label in level)
        between = f"AUROC {each} over {len(seeds.runs)} {seeds.unit}"
    # Seed by seed: what a seed does to all methods alike cancels.
    gain = Spread.of([ours - theirs for ours, theirs in zip(areas[best], areas[plain], strict=True)])
    significant = gain.standard_error is not None and gain.mean > 2 * gain.standard_error
    chance = "" if significant else f" The difference is not significant over {seeds.unit}."
    return f"{_notice(level, unknown_name)} ({between}), against {_with_error(means[plain])} for {plain}.{chance}"


def _with_error(spread: Spread) -> str:
    return f"{spread.mean:.3f}" + ("" if spread.standard_error is None else f" ± {spread.standard_error:.3f}")


def _mean(spread: Spread | None) -> float:
    return 0.0 if spread is None else spread.mean
