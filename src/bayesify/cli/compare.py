"""`bayesify compare`: several methods on one data set, at equal budgets, with the demo's table and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import Json
from bayesify.cli.outcome import FAILED, CommandError, emit
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
        "bayesify compare --against hmc --data moons --seeds 5"
    )(compare)


# A comparison names its methods itself, and the draws are those of its predictions.
@takes_recipe(without=("dropout", "method", "bayesian", "start", "draws"))
def compare(
    context: typer.Context,
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"Any of {', '.join(CARDS)}. (default: the first four; with --against all)",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="hmc",
            help="How far each method's answers are from those of HMC, with the same network and prior.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="For means with standard errors. (default: 1; with --against 5)", metavar="N")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="For the report and the runs. (default: runs/DATA-compared, runs/DATA-against-hmc)"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a comparison that is there.")] = False,
    draws: Annotated[
        int | None,
        typer.Option(help="Functions drawn for each answer. (default: 100; with --against 1000)", metavar="N"),
    ] = None,
    as_json: Json = False,
    settings: dict[str, Any],
) -> None:
    """Train several methods on one data set and compare them: a table, one report.html, and a run for each.

    Budgets are counted in example-gradients; an ensemble is shown with all of it for each member, and shared out.
    A setting of a method goes to the methods that have it, and --prior to those with a posterior; one that none of the
    methods takes is refused.

    With --against hmc each seed is a data set of its own: moons, circles, gap (a regression), mnist (300 images) or
    yours. Printed are accuracy, NLL, ECE, agreement with HMC, total variation to its predictive, the ratio of
    predictive standard deviations and the cost; the last row, one half of the chains against the other, is the floor.
    An interrupted comparison goes on when the same command is given again.
    """
    del context
    listed = None if methods is None else [name for name in methods.split(",") if name.strip()]
    chosen = {"methods": listed, "seeds": seeds, "draws": draws}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if against is not None:
        choose("reference", against, ("hmc",))
        _against(read_settings(settings), out, overwrite, chosen, as_json=as_json)
        return
    of_methods = read_settings({name: settings.pop(name) for name in (*OPTIONS, "prior") if name in settings})
    _compare(make_recipe({}, settings), out, of_methods, overwrite, chosen, as_json=as_json)


def _compare(
    recipe: Recipe, out: Path | None, own: dict[str, Any], overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from bayesify.workflows.compare import recipe_comparison
    from bayesify.workflows.compare.comparison import table

    folder = out or Path("runs") / f"{Path(recipe.data).stem}-compared"
    compared = recipe_comparison.compare(recipe, folder, settings=own, overwrite=overwrite, **chosen)
    if as_json:
        result = {"out": str(folder), "report": str(compared.report), "seeds": chosen.get("seeds", 1)}
        runs = {label: str(path) for label, path in compared.folders.items()}
        emit(result | {"runs": runs, "rows": [row.to_dict() for row in compared.rows]})
        return
    from rich.console import Console

    Console(highlight=False).print(table(compared.rows))
    print(f"the report is in {compared.report}; the networks of the first seed are runs in {folder}")


def _against(
    given: dict[str, Any], out: Path | None, overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from bayesify.workflows.compare import hmc_report
    from bayesify.workflows.compare.against_hmc import compare_against

    given.setdefault("data", "moons")
    folder = out or Path("runs") / f"{Path(given['data']).stem}-against-hmc"
    try:
        found = compare_against(given, folder, overwrite=overwrite, **chosen)
    except KeyboardInterrupt:
        raise CommandError(f"interrupted; the same command goes on from {folder}", FAILED) from None
    if as_json:
        emit({"out": str(folder), "report": str(found.report), "figures": found.figures, **found.results})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(hmc_report.table(found.results))
    console.print(hmc_report.answer(found.results))
    print(f"the report is in {found.report}; every fit is a run in {folder}")
