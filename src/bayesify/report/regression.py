"""The parts of a comparison of regressions: errors, and whether the intervals keep what they promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import plots
from bayesify.evaluation.results import MethodResult, Seeds, told
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
    """Whose predictions are closest and most probable, and whether its intervals hold."""
    by_method = {same[0].label: same for same in seeds.by_method()}
    nll = {label: scoring.over_seeds(same, lambda result: result.evaluation.nll) for label, same in by_method.items()}
    best = min(nll, key=lambda label: np.inf if (spread := nll[label]) is None else spread.mean)
    misfit, error, inside = (
        scoring.over_seeds(by_method[best], value)
        for value in (
            lambda result: result.evaluation.nll,
            lambda result: result.evaluation.rmse,
            lambda result: result.evaluation.coverage_95,
        )
    )
    assert misfit is not None
    assert error is not None
    assert inside is not None
    several = f" on average over {len(seeds.runs)} seeds" if len(seeds.runs) > 1 else ""
    close = f"NLL {misfit.mean:.3f}, RMSE {error.mean:.3g}"
    first = f"gives the test targets the highest probability ({close})" if len(by_method) > 1 else f"reaches {close}"
    report.headline(
        f"{best} {first}; its 95% intervals hold {inside.mean:.1%} of {len(seeds.first[0].predictive):,} "
        f"targets{several}."
    )


def scores(report: Report, seeds: Seeds) -> None:
    """The numbers that stand out and the table."""
    listed = scoring.regression_scores()
    scoring.stand_out(report, seeds, listed)
    count = len(seeds.first[0].predictive)
    scoring.table(report, seeds, listed, f"{count:,} test examples. Intervals are best where they hold 95%.")
    by_title = {score.column.title: score for score in listed}
    chosen = {"RMSE": "RMSE", "targets inside 95% intervals": "95% intervals"}
    scoring.seed_figure(report, seeds, {name: by_title[title] for name, title in chosen.items()})


def intervals(report: Report, results: Sequence[MethodResult]) -> None:
    """Promised against kept, announced against made, and risk against coverage."""
    looks, targets = looks_of(results), results[0].targets
    predictives = {result.label: result.predictive for result in results}
    curves = {result.label: risk_coverage(result.predictive, result.targets) for result in results}
    binned = {label: binned_error(predictive, targets) for label, predictive in predictives.items()}
    held = told({result.label: f"{result.evaluation.coverage_95:.1%}" for result in results})
    report.section("Do the intervals hold?")
    report.figure(
        [
            plots.interval_calibration(predictives, targets, looks=looks),
            plots.error_against_spread(predictives, targets, looks=looks),
            plots.risk_coverage(curves, risk="squared error", looks=looks, axes=style.canvas(None, 3.7, 2.9)),
        ],
        "",
        ["Calibration of intervals", "Error made against error announced", "Risk against coverage"],
        {
            label: {
                "level": LEVELS,
                "inside": observed_coverage(predictive, targets),
                "announced": binned[label].announced,
                "made": binned[label].made,
                "aurc": curves[label].aurc,
            }
            for label, predictive in predictives.items()
        },
        [
            f"Intervals should hold what they promise; below the diagonal they are too narrow. 95% ones hold {held}.",
            "Where a method announces larger errors it should make them; above the diagonal it makes larger ones.",
            "The squared error among the surest predictions: a curve that rises to the right knows which to withhold.",
        ],
    )


def bands(report: Report, results: Sequence[MethodResult], inputs: Any) -> None:
    """The fit over a single input, a third of its range beyond the data on either side."""
    import torch

    given = [torch.as_tensor(result.inputs_or(inputs)).float() for result in results]
    if any(x[0].numel() != 1 for x in given) or results[0].targets.numel() != len(given[0]):
        return
    looks = looks_of(results)
    panels = []
    for result, x in zip(results, given, strict=True):
        low, high = float(x.min()), float(x.max())
        reach = (high - low) / 3 or 1.0
        grid = torch.linspace(low - reach, high + reach, _GRID).reshape(-1, *x.shape[1:])
        fit, look = result.method.predict(grid, draws=result.predictive.draws), looks[result.label]
        panels.append(plots.regression_bands(grid, fit, (x, result.targets), title=result.label, look=look))
    report.section("The fit")
    report.figure(
        panels,
        "Test examples, the mean, what the weights leave open (inner band) and the 95% interval with noise (outer). "
        "Away from the data an honest inner band widens.",
        [f"The fit of {result.label} with its bands" for result in results],
    )
