"""`bayesify bench`: what a Bayesian training step costs against a plain one on this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bayesify.cli.options import Json
from bayesify.cli.outcome import emit

BENCHMARKS = ("step",)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\nbayesify bench --json\n\nbayesify bench step --units 1200 --draws 2 --estimator local"
    )(bench)


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure; there is one so far, step.")] = "step",
    units: Annotated[int, typer.Option(help="Hidden units in each of two layers.")] = 400,
    draws: Annotated[int, typer.Option(help="Weight draws per step.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 128,
    prior: Annotated[str, typer.Option(help="As in train.")] = "scale-mixture:0.75,1,0.000335",
    estimator: Annotated[str, typer.Option(help="weight, local or flipout.")] = "weight",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    rounds: Annotated[int, typer.Option(help="Rounds in which the two take turns.")] = 20,
    steps: Annotated[int, typer.Option(help="Steps of each per round.")] = 10,
    eager: Annotated[bool, typer.Option("--eager", help="Without compiling the sampling pass.")] = False,
    as_json: Json = False,
) -> None:
    """Measure on this machine: a training step of a 784-units-units-10 network, variational against plain.

    The two take turns in short rounds, and their medians are compared.
    """
    from bayesify.benchmarks.step import measure
    from bayesify.errors import at_least, choose
    from bayesify.recipes.training import check_device

    choose("benchmark", name, BENCHMARKS)
    counts = {"units": units, "draws": draws, "batch_size": batch_size, "rounds": rounds, "steps": steps}
    for count, value in counts.items():
        at_least(count, value, 1)
    check_device(device)
    result = measure(
        units=units,
        batch_size=batch_size,
        draws=draws,
        prior=prior,
        estimator=estimator,
        rounds=rounds,
        steps=steps,
        device=device,
        compiled=not eager,
        progress=_show,
    )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if as_json:
        emit(result)
        return
    low, high = result["ratio_quartiles"]
    print(f"a variational step takes {result['ratio']:.2f} times a plain one (quartiles {low:.2f} to {high:.2f})")
    print(f"plain {result['plain_ms']:.2f} ms, variational {result['variational_ms']:.2f} ms, {result['path']} path")


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
