"""`bayesify sweep`: a grid of settings, trained in fleets; the best on validation data is tested."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.engine_flags import Address, EngineName, Jobs, PartOf, Threads, engine_of
from bayesify.cli.options import Json, split_commas
from bayesify.cli.output import FAILED, CommandError, emit
from bayesify.cli.recipe_flags import FLAGS
from bayesify.errors import choose


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify sweep paper-grid --device cuda --precision bfloat16 --out runs/paper-grid\n\n"
        "bayesify sweep paper-grid --device cuda --only draws-10-0,draws-10-1 --out runs/paper-grid\n\n"
        "bayesify sweep paper-grid --device cuda --engine ray --address auto --out runs/paper-grid\n\n"
        "bayesify sweep paper-grid --data digits --units 20 --epochs 50 --search optuna --trials 40 --per-fleet 10\n\n"
        "bayesify sweep small-grid --data mine.csv --target species --ignore id --units 20 --epochs 100\n\n"
        "bayesify sweep paper-grid --data digits --normalise standard --units 20 --epochs 20 --halving 2"
    )(sweep)


def sweep(
    grid: Annotated[str, typer.Argument(metavar="GRID", help="paper-grid or small-grid (see above).")],
    data: Annotated[str, FLAGS["data"].option("data")] = "mnist",
    target: Annotated[str | None, FLAGS["target"].option("target")] = None,
    ignore: Annotated[list[str] | None, FLAGS["ignore"].option("ignore")] = None,
    normalise: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Scaling, as in train. (default: 126 for images, as in the paper; standard for tables)"
        ),
    ] = None,
    units: Annotated[int, typer.Option(help="Hidden units in each layer.")] = 400,
    layers: Annotated[int, typer.Option(help="Hidden layers.")] = 2,
    epochs: Annotated[int, typer.Option(help="Epochs of every network.")] = 600,
    batch_size: Annotated[
        int, typer.Option(help="Examples per step; the grid's rates are for sums over a batch.")
    ] = 128,
    validation: Annotated[
        float,
        typer.Option(
            metavar="SHARE", show_default="1/6", help="Share of the training examples to choose the best network by."
        ),
    ] = 1 / 6,
    halving: Annotated[
        int,
        typer.Option(
            metavar="TIMES", help="How many times to drop the worse half, after 1/2^n, ..., 1/2 of the epochs."
        ),
    ] = 0,
    per_fleet: Annotated[int, typer.Option(help="Networks trained at once.")] = 27,
    precision: Annotated[
        str, typer.Option(help="Precision of matrix products: float32, tf32, or bfloat16 (draws and gradients too).")
    ] = "float32",
    search_by: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="grid|optuna",
            help="Train the whole grid, or let Optuna choose --trials settings within its ranges.",
        ),
    ] = "grid",
    trials: Annotated[int | None, typer.Option(metavar="N", help="Settings to try, with --search optuna.")] = None,
    only: Annotated[str | None, typer.Option(metavar="A,B", help="Train only these sub-fleets.")] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the sub-fleets and which are finished, and train nothing.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of initial weights, noise and shuffling.")] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the results. (default: runs/GRID)")
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    part: PartOf = None,
    as_json: Json = False,
) -> None:
    """Train a grid of variational networks in fleets, choose the best on validation data, and test it once.

    paper-grid: the 324 settings of Blundell et al. 2015, for MNIST: learning rates, draws per step, mixture priors.

    small-grid: eight settings of the same kind, with learning rates for a table: minutes instead of hours.

    The data must have classes. For a table, the target and the columns used are printed and in report.html.

    It can be stopped at any time: the same command resumes after the last finished epoch.
    """
    from bayesify.workflows.sweep import sweep as sweeping
    from bayesify.workflows.sweep.adaptive import SEARCHES, search_adaptively
    from bayesify.workflows.sweep.report import sweep_report

    search = sweeping.Search(
        grid=grid,
        data=data,
        target=target,
        ignore=tuple(split_commas(ignore)) or None,
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
        trials=trials,
    )
    choose("search", search_by, SEARCHES)
    if (search_by == "optuna") != (trials is not None):
        raise CommandError("--search optuna and --trials N go together: N settings are tried")
    if trials is not None and (only or listed):
        raise CommandError("--only and --list are for a grid: an adaptive search chooses as it goes")
    folder = out or Path("runs") / grid
    if listed:
        _list(search, folder, as_json=as_json)
        return
    if normalise is None:
        search = sweeping.with_usual_normalisation(search)
    where = engine_of(engine, address, jobs, threads, part, device)
    try:
        if trials is not None:
            result = search_adaptively(search, folder, device=device, engine=where)
        else:
            names = [name for name in (only or "").split(",") if name]
            result = sweeping.sweep(search, folder, only=names, device=device, engine=where)
    except KeyboardInterrupt:
        raise CommandError("interrupted; resume after the last finished epoch with the same command", FAILED) from None
    report = sweep_report(result, folder / "report.html")
    if as_json:
        emit({name: value for name, value in result.items() if name != "rows"} | {"report": str(report)})
        return
    _print(result)
    print(f"the report is in {report}")


def _list(search: Any, folder: Path, *, as_json: bool) -> None:
    from bayesify.data import available
    from bayesify.workflows.sweep.sweep import SCORES, Search, prepare_with_classes, with_usual_normalisation

    # A list needs no data, but where they are here they are checked as by the search. The default has classes.
    here = {row.name for row in available() if row.here}
    if search.data != Search.data and (search.data in here or Path(search.data).expanduser().exists()):
        prepare_with_classes(with_usual_normalisation(search))
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
    if result["search"]["trials"]:
        print(f"{result['settings']} settings tried, chosen by Optuna within the ranges of {result['search']['grid']}")
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
        print(f"still to train: {', '.join(result['missing'])}")
