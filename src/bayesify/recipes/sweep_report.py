"""The page of a search: the winner, validation error against each hyperparameter, time and cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bayesify.recipes.sweeping import by_hyperparameter
from bayesify.report.report import Report


def sweep_report(result: dict[str, Any], path: Path) -> Path:
    """Write the page and its JSON twin."""
    search = result["search"]
    report = Report(
        f"{search['grid']} on {search['data']}",
        f"{result['scored']} of {result['settings']} settings, {search['epochs']} epochs of "
        f"{'-'.join([str(search['units'])] * search['layers'])} hidden units",
    )
    best = result.get("best")
    if "test" in result and best is not None:
        report.headline(
            f"The best on validation errs on {result['test']['error']:.2%} of the test part (validation "
            f"{best['validation_error']:.2%}): {best['prior']}, learning rate {best['learning_rate']:.3g}, "
            f"{best['draws']} draws per step."
        )
    elif best is not None:
        report.headline(f"So far the best has a validation error of {best['validation_error']:.2%}: {best['prior']}.")
    if result["missing"]:
        report.alert(f"not finished: {', '.join(result['missing'])} are still to be trained")
    report.number("time", f"{result['seconds'] / 60:.1f} min", ", ".join(result["devices"]))
    if result["scored"]:
        report.number("for each network", f"{result['seconds'] / result['scored']:.1f} s")
    found = by_hyperparameter(result)
    if found:
        report.section("Error against each hyperparameter")
        report.figure(
            _figure(found),
            "Validation error of every network, by one hyperparameter at a time, on a logarithmic scale; the line "
            "joins the best ones. A hyperparameter matters where the lowest points move.",
            "validation error against each hyperparameter",
        )
        report.section("The ten best", "On validation; differences of a tenth of a point are chance.")
        rows = sorted((row for row in result["rows"] if row["validation_error"] is not None), key=_error)[:10]
        report.table(
            ["prior", "learning rate", "draws", "validation error", "validation NLL"],
            [
                [
                    row["prior"],
                    f"{row['learning_rate']:.3g}",
                    row["draws"],
                    f"{row['validation_error']:.2%}",
                    f"{row['validation_nll']:.4f}",
                ]
                for row in rows
            ],
        )
    return report.write(path)


def _error(row: dict[str, Any]) -> float:
    return float(row["validation_error"])


def _figure(found: dict[str, dict[str, list[float]]]) -> Figure:
    figure = Figure(figsize=(2.4 * len(found), 3), layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for place, (name, groups) in zip(axes, found.items(), strict=True):
        values = sorted(groups, key=float)
        for position, value in enumerate(values):
            errors = sorted(groups[value])
            spread = [position + 0.3 * (rank / max(1, len(errors) - 1) - 0.5) for rank in range(len(errors))]
            place.plot(spread, errors, "o", markersize=3, alpha=0.5, color="tab:blue")
        place.plot(range(len(values)), [min(groups[value]) for value in values], "-", color="tab:orange")
        place.set_xticks(range(len(values)), values)
        place.set_xlabel(name)
        place.set_yscale("log")
    axes[0].set_ylabel("validation error")
    return figure
