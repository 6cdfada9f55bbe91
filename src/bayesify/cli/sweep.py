"""`bayesify sweep`: a whole grid of settings, trained in fleets and picked on validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import Json
from bayesify.cli.outcome import FAILED, CommandError, emit
from bayesify.cli.recipe_flags import FLAGS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify sweep paper-grid --device cuda --precision bfloat16 --out runs/paper-grid\n\n"
        "bayesify sweep paper-grid --device cuda --only draws-10-0,draws-10-1 --out runs/paper-grid\n\n"
        "bayesify sweep small-grid --data mine.csv --target species --ignore id --units 20 --epochs 100\n\n"
        "bayesify sweep paper-grid --data digits --normalise standard --units 20 --epochs 20 --halving 2"
    )(sweep)


def sweep(
    grid: Annotated[str, typer.Argument(metavar="GRID", help="paper-grid or small-grid, see above.")],
    data: Annotated[str, FLAGS["data"].option("data")] = "mnist",
    target: Annotated[str | None, FLAGS["target"].option("target")] = None,
    ignore: Annotated[list[str] | None, FLAGS["ignore"].option("ignore")] = None,
    normalise: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As in train. (default: 126, the paper's, for images; standard for tables)"),
    ] = None,
    units: Annotated[int, typer.Option(help="Hidden units in each layer.")] = 400,
    layers: Annotated[int, typer.Option(help="Hidden layers.")] = 2,
    epochs: Annotated[int, typer.Option(help="Of every network.")] = 600,
    batch_size: Annotated[int, typer.Option(help="Examples per step; the grid's rates are for sums over it.")] = 128,
    validation: Annotated[float, typer.Option(metavar="SHARE", help="Of the training examples, to pick by.")] = 1 / 6,
    halving: Annotated[
        int, typer.Option(metavar="TIMES", help="Drop the worse half so often, after 1/2^n, ..., 1/2 of the epochs.")
    ] = 0,
    per_fleet: Annotated[int, typer.Option(help="Networks trained at once.")] = 27,
    precision: Annotated[
        str, typer.Option(help="Of the networks' products: float32, tf32, or bfloat16 (draws and gradients too).")
    ] = "float32",
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Sub-fleets to train now.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name the sub-fleets and what is finished.")] = False,
    seed: Annotated[int, typer.Option(help="Of starts, noise and shuffling.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="(default: runs/GRID)")] = None,
    as_json: Json = False,
) -> None:
    """Train a grid of variational networks in fleets; pick on validation; test the winner once.

    paper-grid: the 324 settings of Blundell et al. 2015, for MNIST: learning rates, draws per step, mixture priors.

    small-grid: eight settings of the same kind, with rates for a table: minutes instead of hours.

    The data must have classes. What a table is taken for is printed, and stands in report.html.

    It can be stopped at any time: the same command goes on between two epochs of where it was.
    """
    from bayesify.workflows.sweep import sweep as sweeping
    from bayesify.workflows.sweep.report import sweep_report

    search = sweeping.Search(
        grid=grid,
        data=data,
        target=target,
        ignore=tuple(word for part in ignore or () for word in part.split(",")) or None,
        normalise=normalise or "126",
        validation=validation,
        units=units,
        layers=layers,
        epochs=epochs,
        batch_size=batch_size,
        halving=halving,
        per_fleet=per_fleet,
        precision=precision,
        seed=seed,
    )
    folder = out or Path("runs") / grid
    if listed:
        _list(search, folder, as_json=as_json)
        return
    if normalise is None:
        search = sweeping.with_usual_normalisation(search)
    try:
        result = sweeping.sweep(search, folder, only=[name for name in (only or "").split(",") if name], device=device)
    except KeyboardInterrupt:
        raise CommandError("interrupted; the same command goes on after the last whole epoch", FAILED) from None
    report = sweep_report(result, folder / "report.html")
    if as_json:
        emit({name: value for name, value in result.items() if name != "rows"} | {"report": str(report)})
        return
    _print(result)
    print(f"the report is in {report}")


def _list(search: Any, folder: Path, *, as_json: bool) -> None:
    from bayesify.workflows.sweep.sweep import SCORES

    fleets = {
        name: {"networks": len(numbers), "finished": (folder / name / SCORES).exists()}
        for name, numbers in search.fleets().items()
    }
    if as_json:
        emit({"fleets": fleets})
        return
    for name, about in fleets.items():
        print(f"{name}: {about['networks']} networks{', finished' if about['finished'] else ''}")


def _print(result: dict[str, Any]) -> None:
    if result["understood"]:
        print(result["understood"])
    print(f"{result['scored']} of {result['settings']} settings scored in {result['seconds']:.0f} s")
    if "best" in result:
        best = result["best"]
        print(
            f"best on validation: error {best['validation_error']:.2%} with {best['prior']}, "
            f"learning rate {best['learning_rate']:.3g}, draws {best['draws']}"
        )
    if "test" in result:
        print(f"its test error is {result['test']['error']:.2%}, NLL {result['test']['nll']:.4f}")
    if result["missing"]:
        print(f"to do: {', '.join(result['missing'])}")
