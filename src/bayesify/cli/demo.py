"""`bayesify demo`: a first look at uncertainty, on handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.options import Json
from bayesify.cli.output import emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples:\n\nbayesify demo\n\nbayesify demo --withhold 4 --out runs/demo-4")(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the report and the runs.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of initial weights, shuffling and noise.")] = 0,
    withhold: Annotated[str, typer.Option(metavar="DIGIT", help="The digit to leave out of training.")] = "3",
    quick: Annotated[
        bool, typer.Option("--quick", help="Train for a twentieth of the time, to check that it works.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train four kinds of network on nine digits, then show them the tenth: a table, a report, and what to do next.

    It needs no files and no internet, and takes under two minutes on two cores.
    """
    from rich.console import Console

    from bayesify.workflows import demo as workflow

    console = Console(highlight=False, quiet=as_json)
    result = workflow.run(out, withheld=withhold, seed=seed, quick=quick, console=console)
    if as_json:
        folders = {name: str(folder) for name, folder in result.folders.items()}
        emit({"report": str(result.report), "runs": folders, "rows": [row.to_dict() for row in result.rows]})
