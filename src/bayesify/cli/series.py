"""`bayesify series`: intervals for a time series that keep their coverage when the series changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OwnNetwork, Run, Seed, say_unprepared
from bayesify.cli.output import CommandError, emit, say, write_csv
from bayesify.workflows.recipe import DRAWS

# A larger bound on the difference of two shares says nothing that helps.
_USEFUL = 0.2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify series runs/load --data this_year.csv\n\n"
        "bayesify series runs/load --data this_year.csv --alpha 0.05 --step 0.05 --out intervals.csv"
    )(series)


def series(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(help="Rows in the order of time, with the target. (default: the run's test part)"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a CSV file with the intervals, one row per target.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The share of targets that may be missed in the long run.")] = 0.1,
    step: Annotated[float, typer.Option(help="How fast the intervals follow the misses.")] = 0.02,
    window: Annotated[int, typer.Option(help="How many of the latest errors count.")] = 500,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Follow a series in the order of time: each interval is made from the targets before it.

    Adaptive conformal intervals widen after a miss and narrow after a hit. The share of misses tends to alpha whatever
    the series does; a single interval has no guarantee. Intervals are infinite until enough targets are known.
    """
    import torch

    from bayesify.decisions import adaptive_conformal
    from bayesify.workflows import run_data

    method, examples = run_data.open_run(run, data, network=network)
    if method.likelihood.kind != "regression":
        raise CommandError(f"series is for numbers, {run} predicts classes: use certify --alpha for sets of classes")
    for notice in examples.notices:
        say(notice)
    predicted = method.predict(examples.x, draws=draws, seed=seed)
    made, own = adaptive_conformal(predicted, examples.y, alpha, step, window), predicted.interval(1 - alpha)
    y = examples.y.reshape(-1)
    widths = (made.upper - made.lower)[torch.isfinite(made.upper - made.lower)]
    result: dict[str, Any] = {
        "run": str(run),
        "data": examples.what,
        "targets": len(y),
        "alpha": alpha,
        "missed": float((~made.covered).double().mean()),
        "bound": made.bound,
        "median_width": float(widths.median()) if len(widths) else None,
        "own_missed": float(((y < own[0].cpu()) | (y > own[1].cpu())).double().mean()),
        "last_level": float(made.levels[-1]),
    }
    say_unprepared(run)
    rows = zip(y.tolist(), made.lower.tolist(), made.upper.tolist(), made.covered.tolist(), strict=True)
    if out is not None:
        headings = ["index", "target", "lower", "upper", "covered"]
        write_csv(out, headings, ([index, *row] for index, row in enumerate(rows)))
        result["out"] = str(out)
    if as_json:
        emit(result)
        return
    print(f"{result['targets']:,} targets ({examples.what}): {result['missed']:.1%} missed, {alpha:.1%} allowed")
    if made.bound <= _USEFUL:
        print(f"by the theorem the two differ by at most {made.bound:.1%}; ", end="")
    else:
        # The bound is inversely proportional to the number of targets.
        needed = made.bound / _USEFUL * len(y)
        print(f"too few targets for the theorem: from about {needed:,.0f} on the two differ by at most {_USEFUL:.0%}; ")
    print(f"the method's own intervals miss {result['own_missed']:.1%}")
    if out is not None:
        say(f"{len(y)} intervals are in {out}")
