"""`bayesify compare`: several methods on one data set, at equal budgets or against HMC, with a table and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.engine_flags import Address, EngineName, Jobs, PartOf, Threads, engine_of, unfinished_is_fine
from bayesify.cli.options import Json, name_of, refuse_missing
from bayesify.cli.output import FAILED, CommandError, emit, say_beginning
from bayesify.cli.recipe_flags import takes_recipe
from bayesify.errors import choose
from bayesify.methods.cards import CARDS, OPTIONS
from bayesify.workflows.recipe import Recipe, make_recipe, read_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify compare --data digits --withhold 9 --out runs/compared\n\n"
        "bayesify compare --data mine.csv --target price --methods point,ensemble,variational --seeds 5\n\n"
        "bayesify compare --data mine.csv --target price --methods variational --folds 5\n\n"
        "bayesify compare --data mine.csv --target price --folds 10 --engine ray --address auto\n\n"
        "bayesify compare --against hmc --data moons --seeds 5 --jobs 2"
    )(compare)


# A comparison has --methods, and its --draws are those of the predictions.
@takes_recipe(without=("dropout", "method", "time", "bayesian", "start", "draws"))
def compare(
    context: typer.Context,
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"Methods to compare: any of {', '.join(CARDS)}. (default: the first four; with --against all)",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="hmc",
            help="Measure how far each method's predictions are from those of HMC, with the same network and prior.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds; several give means with standard errors. (default: 1; with --against 5)", metavar="N"
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Cross-validate: train and test this many times, each time with other rows for testing.", metavar="K"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the report and the runs. (default: runs/DATA-compared, runs/DATA-against-hmc)",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a comparison that is already there.")] = False,
    draws: Annotated[
        int | None,
        typer.Option(help="Posterior draws per prediction. (default: 100; with --against 1000)", metavar="N"),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    part: PartOf = None,
    as_json: Json = False,
    settings: dict[str, Any],
) -> None:
    """Train several methods on one data set and compare them: a table, one report.html, and a run for each.

    All methods get the same budget, counted in gradients of single examples. An ensemble is shown twice: with the whole
    budget for each member, and with the budget divided among the members. An option goes to the methods that have it,
    and --prior to those with a posterior; an option that no method takes is refused.

    With --against hmc each seed has its own data set: moons, circles, gap (a regression), mnist (300 images) or yours.
    The table shows accuracy, NLL, ECE, agreement with HMC, total variation to its predictive, the ratio of predictive
    standard deviations, and the cost. Its last row is the floor: one half of the chains against the other.

    The same command resumes an interrupted comparison.
    """
    del context
    if "data" in settings:
        refuse_missing(str(settings["data"]))
    listed = None if methods is None else [name for name in methods.split(",") if name.strip()]
    chosen: dict[str, Any] = {"methods": listed, "seeds": seeds, "draws": draws, "folds": folds}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    chosen["engine"] = engine_of(engine, address, jobs, threads, part, str(settings.get("device") or "cpu"))
    if against is not None:
        choose("reference", against, ("hmc",))
        if folds is not None:
            raise CommandError("--folds is for comparisons at equal budgets: leave out --against")
        with unfinished_is_fine(as_json=as_json):
            _compare_against(read_settings(settings), out, overwrite, chosen, as_json=as_json)
        return
    options = read_settings({name: settings.pop(name) for name in (*OPTIONS, "prior") if name in settings})
    with unfinished_is_fine(as_json=as_json):
        _compare(make_recipe({}, settings), out, options, overwrite, chosen, as_json=as_json)


def _compare(
    recipe: Recipe, out: Path | None, options: dict[str, Any], overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    say_beginning(f"comparing methods on {recipe.data}")
    from bayesify.workflows.compare import recipe_comparison
    from bayesify.workflows.compare.comparison import table

    folder = out or Path("runs") / f"{name_of(recipe.data)}-compared"
    try:
        compared = recipe_comparison.compare(recipe, folder, settings=options, overwrite=overwrite, **chosen)
    except KeyboardInterrupt:
        raise CommandError(f"interrupted; resume {folder} with the same command", FAILED) from None
    if as_json:
        result = {"out": str(folder), "report": str(compared.report), "seeds": chosen.get("seeds", 1)}
        runs = {label: str(path) for label, path in compared.folders.items()}
        beside = {"folds": chosen.get("folds"), "baselines": [row.to_dict() for row in compared.baselines]}
        emit(result | {"runs": runs, "rows": [row.to_dict() for row in compared.rows]} | beside)
        return
    from rich.console import Console

    Console(highlight=False).print(table([*compared.rows, *compared.baselines]))
    print(f"the report is in {compared.report}; the networks of the first seed are runs in {folder}")


def _compare_against(
    settings: dict[str, Any], out: Path | None, overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from bayesify.workflows.compare import hmc_report
    from bayesify.workflows.compare.against_hmc import compare_against

    settings.setdefault("data", "moons")
    folder = out or Path("runs") / f"{Path(settings['data']).stem}-against-hmc"
    try:
        compared = compare_against(settings, folder, overwrite=overwrite, **chosen)
    except KeyboardInterrupt:
        raise CommandError(f"interrupted; resume {folder} with the same command", FAILED) from None
    if as_json:
        emit({"out": str(folder), "report": str(compared.report), "figures": compared.figures, **compared.results})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(hmc_report.table(compared.results))
    console.print(hmc_report.conclusion(compared.results))
    print(f"the report is in {compared.report}; every fit is a run in {folder}")
