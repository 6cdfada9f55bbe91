"""`bayesify prune`: drop the weights that matter least by the posterior, and measure the change in error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OtherData, OwnNetwork, Run, Seed, say_unprepared
from bayesify.cli.output import emit
from bayesify.files import plain
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify prune runs/mnist --fraction 0.95 --out runs/small\n\n"
        "bayesify prune runs/mnist --fraction 0.75 --curve --json"
    )(prune)


def prune(
    run: Run,
    fraction: Annotated[float, typer.Option(help="Share of the weights to drop; biases are kept.")] = 0.95,
    by: Annotated[
        str, typer.Option("--by", help="Rank weights by snr (signal-to-noise, |mean| / width) or magnitude.")
    ] = "snr",
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder for the pruned run. (default: measure only)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
    curve: Annotated[bool, typer.Option("--curve", help="Also print the error at other fractions.")] = False,
    predict_by: Annotated[
        str, typer.Option(metavar="HOW", help="Predict from posterior draws or the mean weights: draws, mean.")
    ] = "draws",
    data: OtherData = None,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Prune a variational run by one threshold over the whole network, and print the error before and after."""
    from bayesify import runs
    from bayesify.evaluation import evaluate, pruning
    from bayesify.workflows import run_data, train

    method, examples = run_data.open_run(run, data, network=network)
    small = pruning.prune(method, fraction, by)
    if out is not None:
        runs.claim(out, overwrite=overwrite)
    test = (examples.x, examples.y)
    before, after = (
        evaluate(model, test, ood=examples.unknown, draws=draws, seed=seed, by=predict_by) for model in (method, small)
    )
    key = "error" if before.error is not None else "rmse"
    result: dict[str, Any] = {
        "run": str(run),
        "out": None if out is None else str(out),
        "fraction": fraction,
        "by": by,
        "predicted_by": predict_by,
        "data": examples.what,
        "weights": method.network.random_size,
        "kept": int(small.kept_weights.sum()),
        f"{key}_before": getattr(before, key),
        f"{key}_after": getattr(after, key),
        "difference": getattr(after, key) - getattr(before, key),
        "before": before.to_dict(),
        "after": after.to_dict(),
    }
    if curve:
        result["curve"] = pruning.pruning_curve(
            method, test, by=by, predicted_by=predict_by, draws=draws, seed=seed
        ).to_dict()
    result = plain(result)
    if out is not None:
        small.save(out)
        train.write_metrics(out, result["after"] | {"data": examples.what, "by": predict_by, "seed": seed})
    say_unprepared(run)
    if as_json:
        emit(result)
    else:
        _print(result, before, after, key)


def _print(result: dict[str, Any], before: Evaluation, after: Evaluation, key: str) -> None:
    share = 1 - result["kept"] / result["weights"]
    print(
        f"{result['kept']:,} of {result['weights']:,} random weights kept ({share:.1%} dropped, by {result['by']};"
        " biases are always kept)"
    )
    was, now = getattr(before, key), getattr(after, key)
    print(f"{key} {was:.4f} before, {now:.4f} after; nll {before.nll:.4f}, {after.nll:.4f}")
    curve = result.get("curve", {"fractions": [], "error": []})
    for fraction, error in zip(curve["fractions"], curve["error"], strict=True):
        print(f"  {fraction:>6.1%} pruned: {key} {error:.4f}")
    if result["out"]:
        print(f"the pruned run is in {result['out']}")
