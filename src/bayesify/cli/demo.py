"""`bayesify demo`: the point in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.options import Json
from bayesify.cli.outcome import emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples:\n\nbayesify demo\n\nbayesify demo --withhold 4 --out runs/demo-4")(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For the report and the runs.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Of starts, shuffling and noise.")] = 0,
    withhold: Annotated[str, typer.Option(metavar="DIGIT", help="The digit that no network is taught.")] = "3",
    quick: Annotated[bool, typer.Option("--quick", help="A twentieth of the training, to see that it works.")] = False,
    as_json: Json = False,
) -> None:
    """Teach four kinds of network nine digits, then show them the tenth: a table, pictures, and what to do next.

    It needs no files and no network, and takes under two minutes on two cores.
    """
    from rich.console import Console

    from bayesify.workflows import demo as story

    console = Console(highlight=False, quiet=as_json)
    made = story.run(out, withheld=withhold, seed=seed, quick=quick, console=console)
    if as_json:
        folders = {name: str(folder) for name, folder in made.folders.items()}
        emit({"report": str(made.report), "runs": folders, "rows": [row.to_dict() for row in made.rows]})
