"""The report of a search: the winner, validation error against each hyperparameter, and the time it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bayesify.evaluation.seed_statistics import error_of_share
from bayesify.plots import style
from bayesify.report.report import Report
from bayesify.workflows.sweep.sweep import by_hyperparameter


def sweep_report(result: dict[str, Any], path: Path) -> Path:
    """Write the report of a search, with its numbers in a JSON file beside it.

    Args:
        result: as `sweep` returns it.
        path: the HTML file.

    Returns:
        The path.

    """
    search = result["search"]
    report = Report(
        f"{search['grid']} on {search['data']}",
        f"{result['scored']} of {result['settings']} settings, {search['epochs']} epochs of "
        f"{'-'.join([str(search['units'])] * search['layers'])} hidden units"
        + (f"; {result['understood']}" if result.get("understood") else ""),
    )
    best = result.get("best")
    if "test" in result and best is not None:
        report.headline(
            f"The best network on validation data has a test error of {result['test']['error']:.2%} (validation "
            f"{best['validation_error']:.2%}): {best['prior']}, learning rate {best['learning_rate']:.3g}, "
            f"{best['draws']} draw{'s' if best['draws'] > 1 else ''} per step."
        )
    elif best is not None and best["validation_error"] is None:
        report.headline("So far every network has diverged.")
    elif best is not None:
        report.headline(f"The best validation error so far is {best['validation_error']:.2%}: {best['prior']}.")
    if result["missing"]:
        report.alert(f"not finished: train {', '.join(result['missing'])} with the same command")
    seconds = result["seconds"]
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    report.number("time", time, ", ".join(result["devices"]))
    if result["scored"]:
        report.number("for each network", f"{seconds / result['scored']:.1f} s")
    errors = by_hyperparameter(result)
    if errors:
        report.section("Error against each hyperparameter")
        report.figure(
            hyperparameter_figure(errors),
            "Validation error of every network by one hyperparameter at a time. The line "
            "joins the lowest errors; a hyperparameter matters where the line moves.",
            "validation error against each hyperparameter",
        )
        report.section("The ten best", _chance(result))
        rows = sorted((row for row in result["rows"] if None not in _scores(row)), key=_scores)[:10]
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


def _chance(result: dict[str, Any]) -> str:
    """The standard error of the best network's validation error."""
    count, error = result["validated_on"], result["best"]["validation_error"]
    if error is None:
        return f"On {count:,} validation examples."
    deviation = 100 * error_of_share(error, count)
    return f"On {count:,} validation examples; the standard error of the best error is {deviation:.2f} points."


def _scores(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["validation_error"], row["validation_nll"]


def hyperparameter_figure(by_name: dict[str, dict[str, list[float]]]) -> Figure:
    """Plot the validation errors of `by_hyperparameter`, one panel for each hyperparameter."""
    from matplotlib.ticker import NullLocator

    figure = style.new_figure(2.1 * len(by_name), 2.9)
    panels = figure.subplots(1, len(by_name), sharey=True, squeeze=False)[0]
    for axes, (name, groups) in zip(panels, by_name.items(), strict=True):
        values = sorted(groups, key=float)
        for position, value in enumerate(values):
            errors = sorted(groups[value])
            spread = [position + 0.3 * (rank / max(1, len(errors) - 1) - 0.5) for rank in range(len(errors))]
            label = "a network" if position == 0 else None
            axes.plot(spread, errors, "o", markersize=3, alpha=0.5, color=style.KNOWN, label=label)
        lowest = [min(groups[value]) for value in values]
        axes.plot(range(len(values)), lowest, "-", color=style.UNKNOWN, label="lowest error")
        axes.set_xticks(range(len(values)), values)
        style.dress(axes, x=name, y="validation error" if axes is panels[0] else "")
    # A network without mistakes has no place on a logarithmic scale.
    if all(error > 0 for groups in by_name.values() for errors in groups.values() for error in errors):
        panels[0].set_yscale("log")
        low, high = panels[0].get_ylim()
        panels[0].yaxis.set_minor_locator(NullLocator())
        ticks = [digit * 10.0**power for power in (-3, -2, -1) for digit in (1, 1.5, 2, 3, 5, 7)]
        panels[0].set_yticks([tick for tick in ticks if low <= tick <= high])
        panels[0].set_ylim(low, high)
    style.percent(panels[0], "y")
    style.legend(panels[0], "upper right")
    return figure
