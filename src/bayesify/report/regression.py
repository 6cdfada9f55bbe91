"""The parts of a comparison of regressions: errors, and the coverage of the intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesify import plots
from bayesify.evaluation.results import MethodResult, Seeds, Spread, list_by_label
from bayesify.evaluation.selective import risk_coverage
from bayesify.plots import style
from bayesify.plots.quality import LEVELS, binned_error, observed_coverage
from bayesify.plots.style import looks_of
from bayesify.report import scoring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.report.report import Report

_GRID = 200


def headline(report: Report, seeds: Seeds) -> None:
    """Which method gives the targets the highest probability, its error, and whether its intervals hold."""
    by_method = {same[0].label: same for same in seeds.by_method()}
    listed = scoring.reported_scores("regression")
    means = {
        label: {name: _mean(scoring.over_seeds(same, listed[name].value)) for name in ("nll", "rmse", "coverage_95")}
        for label, same in by_method.items()
    }
    best = min(means, key=lambda label: means[label]["nll"])
    several = f" on average over {len(seeds.runs)} {seeds.unit}" if len(seeds.runs) > 1 else ""
    close = f"NLL {means[best]['nll']:.3f}, RMSE {means[best]['rmse']:.3g}"
    first = f"gives the test targets the highest probability ({close})" if len(by_method) > 1 else f"reaches {close}"
    level = [label for label in means if label != best and f"{means[label]['nll']:.3f}" == f"{means[best]['nll']:.3f}"]
    level_with = f", level with {' and '.join(level)}" if level else ""
    report.headline(
        f"{best} {first}{level_with}; its 95% intervals contain {means[best]['coverage_95']:.1%} of "
        f"{len(seeds.first[0].predictive):,} targets{several}."
    )


def scores(report: Report, seeds: Seeds) -> None:
    """The large numbers and the table."""
    listed = scoring.reported_scores("regression")
    scoring.large_numbers(report, seeds, listed)
    count = len(seeds.first[0].predictive)
    scoring.table(report, seeds, listed, f"{count:,} test examples. The 95% intervals should contain 95%.")
    chosen = {"RMSE": listed["rmse"], "targets inside 95% intervals": listed["coverage_95"]}
    scoring.seed_figure(report, seeds, chosen)


def agreement(report: Report, results: Sequence[MethodResult]) -> None:
    """Predicted against true numbers, for each method."""
    looks = looks_of(results)
    report.section("Predicted against true")
    report.figure(
        [
            plots.predicted_against_true(
                result.predictive, result.targets, title=result.label, look=looks[result.label]
            )
            for result in results
        ],
        "Each dot is a test example with its 95% interval. On the dashed diagonal a prediction is exact. An interval "
        "that does not reach the diagonal misses the true number.",
        [f"Predicted against true numbers of {result.label}" for result in results],
    )


def intervals(report: Report, results: Sequence[MethodResult]) -> None:
    """Coverage against the level of the intervals, error against predicted error, and risk against coverage."""
    looks, targets = looks_of(results), results[0].targets
    predictives = {result.label: result.predictive for result in results}
    curves = {result.label: risk_coverage(result.predictive, result.targets) for result in results}
    binned = {label: binned_error(predictive, targets) for label, predictive in predictives.items()}
    inside = list_by_label({result.label: f"{result.evaluation.coverage_95:.1%}" for result in results})
    report.section("Do the intervals hold?")
    report.figure(
        [
            plots.interval_calibration(predictives, targets, looks=looks),
            plots.error_against_spread(predictives, targets, looks=looks),
            plots.risk_coverage(curves, risk="squared error", looks=looks, axes=style.canvas(None, 3.7, 3.5)),
        ],
        "",
        ["Calibration of intervals", "Error against predicted error", "Risk against coverage"],
        {
            label: {
                "level": LEVELS,
                "inside": observed_coverage(predictive, targets),
                "announced": binned[label].predicted,
                "made": binned[label].observed,
                "aurc": curves[label].aurc,
            }
            for label, predictive in predictives.items()
        },
        [
            f"Below the diagonal, intervals are too narrow. The 95% intervals contain {inside} of the targets.",
            "Real errors against predicted errors. Above the diagonal, errors are larger than predicted.",
            "Squared error of the most certain predictions. It should rise to the right: certain predictions err less.",
        ],
    )


def bands(report: Report, results: Sequence[MethodResult], inputs: Any) -> None:
    """The fit over a single input, a third of its range beyond the data on either side."""
    import torch

    all_inputs = [torch.as_tensor(result.inputs_or(inputs)).float() for result in results]
    if any(x[0].numel() != 1 for x in all_inputs) or results[0].targets.numel() != len(all_inputs[0]):
        return
    looks = looks_of(results)
    panels = []
    for result, x in zip(results, all_inputs, strict=True):
        low, high = float(x.min()), float(x.max())
        reach = (high - low) / 3 or 1.0
        grid = torch.linspace(low - reach, high + reach, _GRID).reshape(-1, *x.shape[1:])
        fit, look = result.method.predict(grid, draws=result.predictive.draws), looks[result.label]
        panels.append(plots.regression_bands(grid, fit, (x, result.targets), title=result.label, look=look))
    report.section("The fit")
    report.figure(
        panels,
        "Test examples, the mean, its uncertainty (inner band) and the 95% interval with noise (outer band). Away from "
        "the data the inner band should widen.",
        [f"The fit of {result.label} with its bands" for result in results],
    )


def _mean(spread: Spread | None) -> float:
    assert spread is not None
    return spread.mean
