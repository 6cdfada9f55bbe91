"""Options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.outcome import say
from bayesify.methods.cards import CARDS

# The names that a shell may complete without reading anything.
DATA_NAMES = ("digits", "moons", "circles", "mnist", "fashion-mnist", "notmnist", "cifar10", "mushroom")
PRIORS = (
    "normal:1",
    "laplace:1",
    "cauchy:1",
    "student-t:3,1",
    "scale-mixture:0.75,1,0.000335",
    "flat",
    "pretrained:0.03",
)


def complete_data(incomplete: str) -> list[str]:
    return [name for name in DATA_NAMES if name.startswith(incomplete)]


def complete_method(incomplete: str) -> list[str]:
    return [name for name in CARDS if name.startswith(incomplete)]


def complete_prior(incomplete: str) -> list[str]:
    return [text for text in PRIORS if text.startswith(incomplete)]


def say_unprepared(*folders: Path) -> None:
    """Say which runs were fitted in Python: they hold no preparation, so their inputs are taken as they are."""
    from bayesify import runs

    bare = [str(run) for run in folders if not (runs.read_config(run).get("data") or {}).get("preparation")]
    if bare:
        say(f"{', '.join(bare)}: fitted in Python, so inputs are taken as they are, scaled as they were for fit")


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that train has written.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Draws = Annotated[int, typer.Option(help="Functions drawn from the posterior for each answer.")]
Seed = Annotated[int, typer.Option(help="Seed of those draws.")]
By = Annotated[
    str, typer.Option("--by", help="Answer by draws, by the mean weights, or without draws: draws, mean, moments.")
]
OtherData = Annotated[
    str | None,
    typer.Option(
        help="Where the run's data is now, or other data. For a run fitted in Python: an .npz file with x and y, as "
        "its network takes them."
    ),
]
OwnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="MODULE:FACTORY",
        help="The code that makes the run's network, where it is not one of ours: as given to train, or a function of "
        "yours that returns the nn.Module of a run fitted in Python. The module is looked for in the current folder.",
    ),
]
