"""Options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.recipes.recipe import METHOD_NAMES

# The names that a shell may complete without reading anything.
DATA_NAMES = ("digits", "moons", "circles", "mnist", "fashion-mnist", "notmnist", "cifar10", "mushroom")


def complete_data(incomplete: str) -> list[str]:
    return [name for name in DATA_NAMES if name.startswith(incomplete)]


def complete_method(incomplete: str) -> list[str]:
    return [name for name in METHOD_NAMES if name.startswith(incomplete)]


def complete_prior(incomplete: str) -> list[str]:
    known = ("normal:1", "normal:fan_in", "laplace:1", "cauchy:1", "student-t:3,1", "scale-mixture:0.75,1,0.000335", "flat")
    return [text for text in known if text.startswith(incomplete)]


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that train has written.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Draws = Annotated[int, typer.Option(help="Functions drawn from the posterior for each answer.")]
Seed = Annotated[int, typer.Option(help="Seed of those draws.")]
By = Annotated[str, typer.Option("--by", help="Answer by draws, or by the posterior's mean weights: draws, mean.")]
OwnNetwork = Annotated[
    str | None,
    typer.Option("--network", metavar="MODULE:FACTORY", help="Your code, where the run's network is not one of ours."),
]
