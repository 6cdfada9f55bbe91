"""Options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.output import CommandError, say
from bayesify.methods.cards import CARDS

# Names for shell completion, listed here so that no data module is imported.
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
    return [name for name in ("auto", *CARDS) if name.startswith(incomplete)]


def complete_prior(incomplete: str) -> list[str]:
    return [text for text in PRIORS if text.startswith(incomplete)]


def name_of(data: str) -> str:
    """A short name of data for the default name of a folder: the file without its suffixes."""
    place = data.partition("?query=")[0]
    return Path(Path(place).name.removesuffix(".gz")).stem


def refuse_missing(data: str) -> None:
    """Refuse a file that is not there, before PyTorch is loaded; names of data sets have no suffix."""
    place = Path(data).expanduser()
    if place.suffix and not data.startswith("sqlite:") and not place.exists():
        raise CommandError(f"{place}: there is no such file")


def say_unprepared(*folders: Path) -> None:
    """Print which runs were fitted in Python: they have no preparation, so their inputs are taken as they are."""
    from bayesify import runs

    unprepared = [str(run) for run in folders if not (runs.read_config(run).get("data") or {}).get("preparation")]
    if unprepared:
        say(f"{', '.join(unprepared)}: fitted in Python, so inputs are taken as they are: scale them as for fit")


def split_commas(values: list[str] | None) -> list[str]:
    """The values of a repeated flag as one list; a value may hold several, separated by commas."""
    return [word for value in values or () for word in value.split(",")]


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as written by train.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
Draws = Annotated[int, typer.Option(help="Posterior draws per prediction.")]
Seed = Annotated[int, typer.Option(help="Seed of the posterior draws.")]
By = Annotated[
    str,
    typer.Option(
        "--by", help="Predict from posterior draws (draws), mean weights (mean), or moments without draws (moments)."
    ),
]
OtherData = Annotated[
    str | None,
    typer.Option(
        help="Other data with the same target, or the new path of the run's data. (default: the run's test part) For "
        "a run fitted in Python: an .npz file with arrays x and y, as its network takes them.",
        autocompletion=complete_data,
    ),
]
Unknown = Annotated[
    str | None,
    typer.Option(
        "--ood",
        help="Unknown inputs, which should be uncertain: a data set's name, a file or a folder. (default: the withheld "
        "classes)",
        autocompletion=complete_data,
    ),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        metavar="ERROR",
        help="Accept only what bayesify certify guaranteed: at most this share of the accepted predictions is wrong.",
    ),
]
OwnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="MODULE:FACTORY",
        help="The function that makes the run's network, if the network is not built in: as given to train, or for a "
        "run fitted in Python a function that returns its nn.Module. The module is imported from the current folder.",
    ),
]
