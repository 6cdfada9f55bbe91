"""The parts of a comparison of regressions: errors, and whether the intervals keep what they promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify import plots
from bayesify.plots import style
from bayesify.plots.quality import LEVELS, binned_error, observed_coverage
from bayesify.report.report import Column, Report
from bayesify.report.results import MethodResult, looks_of
from bayesify.selective import risk_coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

_GRID = 200


def headline(report: Report, results: Sequence[MethodResult]) -> None:
    """Whose predictions are closest and most probable, and whether its intervals hold."""
    best = min(results, key=lambda result: np.inf if result.evaluation.nll is None else result.evaluation.nll)
    scores = best.evaluation
    first = f"{best.label} gives the test targets the highest probability" if len(results) > 1 else best.label
    report.headline(
        f"{first} (NLL {scores.nll:.3f}, RMSE {scores.rmse:.3g}); its 95% intervals hold {scores.coverage_95:.1%} of "
        f"{len(best.predictive):,} targets."
    )


def scores(report: Report, results: Sequence[MethodResult]) -> None:
    """The table."""
    columns = [
        Column("method"),
        Column("RMSE", ".3g", better="lower", note="units of the target"),
        Column("MAE", ".3g", better="lower", note="units of the target"),
        Column("NLL", ".3f", better="lower", note="nats"),
        Column("CRPS", ".3g", better="lower", note="units of the target"),
        Column("95% intervals", ".1%", note="targets inside"),
        Column("AUROC", ".3f", better="higher", note="unknown noticed"),
        Column("cost", ".2g", "×", note="training time"),
    ]
    rows = [
        [result.label, e.rmse, e.mae, e.nll, e.crps, e.coverage_95, e.auroc, result.cost]
        for result in results
        for e in [result.evaluation]
    ]
    kept = [place for place in range(len(columns)) if place == 0 or any(row[place] is not None for row in rows)]
    report.section("Scores")
    report.table(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        f"{len(results[0].predictive):,} test examples. Bold is best; intervals are best where they hold 95%.",
    )


def intervals(report: Report, results: Sequence[MethodResult]) -> None:
    """Promised against kept, announced against made, and risk against coverage."""
    looks, targets = looks_of(results), results[0].targets
    predictives = {result.label: result.predictive for result in results}
    curves = {result.label: risk_coverage(result.predictive, result.targets) for result in results}
    binned = {label: binned_error(predictive, targets) for label, predictive in predictives.items()}
    report.section("Do the intervals hold?")
    report.figure(
        [
            plots.interval_calibration(predictives, targets, looks=looks),
            plots.error_against_spread(predictives, targets, looks=looks),
            plots.risk_coverage(curves, risk="squared error", looks=looks, axes=style.canvas(None, 3.7, 2.9)),
        ],
        "First: central intervals should hold as many targets as they promise; below the diagonal they are too "
        "narrow. Second: where a method announces larger errors it should make them. Third: the squared error among "
        "the surest predictions; a curve that rises to the right knows which to withhold.",
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
    )


def bands(report: Report, results: Sequence[MethodResult], inputs: Any) -> None:
    """The fit over a single input, a third of its range beyond the data on either side."""
    import torch

    x = torch.as_tensor(inputs).float()
    if x[0].numel() != 1 or results[0].targets.numel() != len(x):
        return
    low, high = float(x.min()), float(x.max())
    reach = (high - low) / 3 or 1.0
    grid = torch.linspace(low - reach, high + reach, _GRID).reshape(-1, *x.shape[1:])
    looks = looks_of(results)
    panels = []
    for result in results:
        fit, look = result.method.predict(grid, draws=result.predictive.draws), looks[result.label]
        panels.append(plots.regression_bands(grid, fit, (x, result.targets), title=result.label, look=look))
    report.section("The fit")
    report.figure(
        panels,
        "Test examples, the mean, what the weights leave open (inner band) and the 95% interval with noise (outer). "
        "Away from the data an honest inner band widens.",
        [f"The fit of {result.label} with its bands" for result in results],
    )
