"""`bayesify bench`: what being Bayesian costs on this machine, in training, in serving and in sampling."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bayesify.cli.options import Json
from bayesify.cli.outcome import emit

BENCHMARKS = ("step", "serve", "hmc")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\nbayesify bench --json\n\nbayesify bench step --units 1200 --draws 2 --estimator local\n\n"
        "bayesify bench serve --connections 32\n\n"
        "BAYESIFY_NUMPYRO_PYTHON=/path/to/python bayesify bench hmc --rounds 3"
    )(bench)


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to measure: step, serve or hmc.")] = "step",
    units: Annotated[int, typer.Option(help="Hidden units in each of two layers.")] = 400,
    draws: Annotated[
        int | None, typer.Option(help="Per step (default: 1), or per answer served (default: 30).")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 128,
    prior: Annotated[str, typer.Option(help="As in train.")] = "scale-mixture:0.75,1,0.000335",
    estimator: Annotated[str, typer.Option(help="weight, local or flipout.")] = "weight",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds in which they take turns. (default: 20, 5 for serve, 1 for hmc)")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of each per round.")] = 10,
    connections: Annotated[int, typer.Option(help="Clients at once, for serve.")] = 32,
    seconds: Annotated[float, typer.Option(help="Of each round, for serve.")] = 2.0,
    eager: Annotated[bool, typer.Option("--eager", help="Without compiling the sampling pass.")] = False,
    as_json: Json = False,
) -> None:
    """Measure on this machine: a variational step or server against a plain one, or HMC against NumPyro's NUTS.

    They take turns, and their medians are compared. NumPyro lives in an environment of its own, named by
    $BAYESIFY_NUMPYRO_PYTHON; without it only our HMC is measured.
    """
    from bayesify.errors import at_least, choose

    choose("benchmark", name, BENCHMARKS)
    if name == "hmc":
        _hmc(rounds=1 if rounds is None else rounds, compiled=not eager, device=device, as_json=as_json)
        return
    if name == "serve":
        _serve(
            draws=30 if draws is None else draws,
            rounds=5 if rounds is None else rounds,
            connections=connections,
            seconds=seconds,
            as_json=as_json,
        )
        return
    from bayesify.benchmarks.step import measure
    from bayesify.recipes.training import check_device

    draws, rounds = 1 if draws is None else draws, 20 if rounds is None else rounds
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
    _wipe()
    if as_json:
        emit(result)
        return
    low, high = result["ratio_quartiles"]
    print(f"a variational step takes {result['ratio']:.2f} times a plain one (quartiles {low:.2f} to {high:.2f})")
    print(f"plain {result['plain_ms']:.2f} ms, variational {result['variational_ms']:.2f} ms, {result['path']} path")


def _serve(*, draws: int, rounds: int, connections: int, seconds: float, as_json: bool) -> None:
    from bayesify.cli.serve import check_installed
    from bayesify.errors import at_least, positive

    check_installed()
    from bayesify.benchmarks.serve import measure

    for count, value in {"draws": draws, "rounds": rounds, "connections": connections}.items():
        at_least(count, value, 1)
    positive("seconds", seconds)
    result = measure(draws=draws, rounds=rounds, connections=connections, seconds=seconds, progress=_show)
    _wipe()
    if as_json:
        emit(result)
        return
    low, high = result["ratio_quartiles"]
    print(f"a plain network answers {result['ratio']:.2f} times as many requests (quartiles {low:.2f} to {high:.2f})")
    for who in ("plain", "variational"):
        rate, middle, tail = (result[f"{who}_{what}"] for what in ("per_second", "p50_ms", "p99_ms"))
        print(f"{who}: {rate:.0f} single images a second, half within {middle:.1f} ms, 99% within {tail:.1f} ms")


def _hmc(*, rounds: int, compiled: bool, device: str, as_json: bool) -> None:
    from bayesify.benchmarks.hmc import measure
    from bayesify.recipes.training import check_device

    check_device(device)
    result = measure(repeats=rounds, compiled=compiled, device=device, progress=_show)
    _wipe()
    if as_json:
        emit(result)
        return
    for who in ("eager", "compiled", "numpyro"):
        if result[who]:
            rate, whole = (result[who][f"ess_min_per_second{more}"] for more in ("", "_with_compilation"))
            print(f"{who}: {rate:.1f} effective draws a second of the worst prediction, {whole:.1f} with compiling")
    if result["numpyro"] is None:
        print(f"NumPyro was not measured: {result['numpyro_skipped']}")
    else:
        for name in (name for name in result if name.startswith("ratio")):
            print(f"ours over NumPyro's, {name.removeprefix('ratio_').replace('_', ' ')}: {result[name]:.1f} times")


def _wipe() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
