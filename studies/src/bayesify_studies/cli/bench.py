"""`bayesify bench`: what being Bayesian costs on this machine, in training, in answers, in serving and in sampling."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from bayesify.cli.options import Json
from bayesify.cli.output import emit
from bayesify.cli.recipe_flags import given_flags

BENCHMARKS = {
    "step": "a training step against a plain one",
    "samplers": "a step of SGLD and SGHMC against a plain one",
    "graphs": "the same on a GPU, both compiled and captured in a graph",
    "epochs": "a whole fit of 60,000 images",
    "predict": "answers by draws and by moments against plain passes",
    "memory": "bytes of tensors held in training",
    "networks": "a step of ResNet-18 or -50, ViT, BERT or GPT-2 against a plain one",
    "fleet": "many networks at once against one by one",
    "scaling": "how costs grow with weights, draws, batch, data, fleet",
    "floor": "the least time that a step can take here",
    "peers": "other libraries' steps on the same work",
    "serve": "requests a second of a server",
    "hmc": "effective draws a second against NumPyro's NUTS",
}
# What an option is called by a benchmark that has a word of its own for it.
_OWN_WORDS = {("hmc", "rounds"): "repeats"}
_LISTS = {"over": str, "sizes": int, "networks": int, "only": str}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\nbayesify bench --json\n\nbayesify bench step --units 1200 --draws 2 --estimator local\n\n"
        "bayesify bench scaling --over draws --sizes 1,4,16\n\nbayesify bench floor --device cuda\n\n"
        "bayesify bench networks --network bert --method ivon --device cuda\n\n"
        "bayesify bench peers --only torchbnn,ivon-opt\n\nbayesify bench serve --connections 32\n\n"
        "BAYESIFY_NUMPYRO_PYTHON=/path/to/python bayesify bench hmc --rounds 3"
    )(bench)


def bench(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items()))
    ] = "step",
    network: Annotated[
        str, typer.Option(help="mlp or cnn (step); resnet18, resnet50, vit, bert or gpt2 (networks).")
    ] = "mlp",
    units: Annotated[int, typer.Option(help="Hidden units in each of two layers.")] = 400,
    draws: Annotated[
        int | None, typer.Option(help="Per step (default: 1), or per answer (default: 30 in serve, 100 in predict).")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 128,
    prior: Annotated[str, typer.Option(help="As in train.")] = "scale-mixture:0.75,1,0.000335",
    estimator: Annotated[str, typer.Option(help="weight, local or flipout.")] = "weight",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    method: Annotated[
        str, typer.Option(help="variational, flipout, ivon, sgld, sghmc, ... (networks).")
    ] = "variational",
    precision: Annotated[str, typer.Option(help="bfloat16 or tf32 (networks).")] = "bfloat16",
    tiny: Annotated[bool, typer.Option("--tiny", help="The same layers in small, to try it out (networks).")] = False,
    rounds: Annotated[int | None, typer.Option(help="Rounds in which the candidates take turns.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of each per round (step, peers).")] = 10,
    epochs: Annotated[int | None, typer.Option(help="To fit (default: 4, or 600 on a GPU) (epochs).")] = None,
    members: Annotated[int, typer.Option(help="Members of the ensemble (fleet).")] = 5,
    networks: Annotated[str | None, typer.Option(help="Sizes of fleets, as in 1,3,9 (fleet).")] = None,
    over: Annotated[str | None, typer.Option(help="Curves, as in weights,draws (scaling).")] = None,
    sizes: Annotated[str | None, typer.Option(help="Sizes of each curve, as in 1,2,4 (scaling).")] = None,
    only: Annotated[str | None, typer.Option(help="Some libraries, as in torchbnn,ivon-opt (peers).")] = None,
    python: Annotated[str | None, typer.Option(help="Python of the environment with the libraries (peers).")] = None,
    connections: Annotated[int, typer.Option(help="Clients at once (serve).")] = 32,
    seconds: Annotated[float, typer.Option(help="Seconds of each round (serve).")] = 2.0,
    eager: Annotated[bool, typer.Option("--eager", help="Without compiling.")] = False,
    as_json: Json = False,
) -> None:
    """Measure speed on this machine. Candidates take turns, and their medians are compared.

    NumPyro lives in an environment of its own, named by $BAYESIFY_NUMPYRO_PYTHON, and other libraries in one that
    `make bench` makes; what is not there is left out and named. `make bench` measures everything.
    """
    from bayesify.errors import choose

    named = given_flags(context)
    given = {name: value for name, value in locals().items() if name in named}
    choose("benchmark", name, BENCHMARKS)
    if name == "serve":
        from bayesify.cli.serve import check_installed

        check_installed()
    module = importlib.import_module(f"bayesify_studies.benchmarks.{name}")
    settings = _settings(name, module.measure, given)
    result = module.measure(**settings, progress=_show)
    _wipe()
    if as_json:
        emit(result)
        return
    for line in _LINES.get(name, getattr(module, "lines", _everything))(result):
        print(line)


def _settings(name: str, measure: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as this benchmark calls them; one that it does not have is an error."""
    from bayesify.errors import at_least, positive
    from bayesify.workflows.train import check_device

    known = inspect.signature(measure).parameters
    settings: dict[str, Any] = {}
    for option, value in given.items():
        if option in {"name", "as_json"} or value is None or (option in {"eager", "tiny"} and not value):
            continue
        own = "compiled" if option == "eager" else _OWN_WORDS.get((name, option), option)
        if own not in known:
            raise ValueError(f"bench {name} has no --{option.replace('_', '-')}: leave it out")
        if isinstance(value, int) and not isinstance(value, bool):
            at_least(option, value, 1)
        if isinstance(value, float):
            positive(option, value)
        if option == "device":
            check_device(value)
        settings[own] = False if option == "eager" else _parsed(option, value)
    return settings


def _parsed(option: str, value: Any) -> Any:
    if option not in _LISTS:
        return value
    try:
        return tuple(_LISTS[option](part.strip()) for part in str(value).split(","))
    except ValueError:
        raise ValueError(f"--{option} must be whole numbers with commas between, as in 1,2,4, got {value!r}") from None


def _step(result: dict[str, Any]) -> list[str]:
    low, high = result["ratio_quartiles"]
    lines = [f"a variational step takes {result['ratio']:.2f} times a plain one (quartiles {low:.2f} to {high:.2f})"]
    if result.get("ratio_to_compiled_plain") is not None:
        lines.append(f"and {result['ratio_to_compiled_plain']:.2f} times a compiled plain one")
    return [
        *lines,
        f"plain {result['plain_ms']:.2f} ms, variational {result['variational_ms']:.2f} ms, {result['path']} path",
    ]


def _serve(result: dict[str, Any]) -> list[str]:
    low, high = result["ratio_quartiles"]
    lines = [
        f"a plain network answers {result['ratio']:.2f} times as many requests (quartiles {low:.2f} to {high:.2f})"
    ]
    for who in ("plain", "variational"):
        rate, middle, tail = (result[f"{who}_{what}"] for what in ("per_second", "p50_ms", "p99_ms"))
        lines.append(f"{who}: {rate:.0f} single images a second, half within {middle:.1f} ms, 99% within {tail:.1f} ms")
    return lines


def _hmc(result: dict[str, Any]) -> list[str]:
    lines = []
    for who in ("eager", "compiled", "numpyro"):
        if result[who]:
            rate, whole = (result[who][f"ess_min_per_second{more}"] for more in ("", "_with_compilation"))
            lines.append(
                f"{who}: {rate:.1f} effective draws a second of the worst prediction, {whole:.1f} with compiling"
            )
    if result["numpyro"] is None:
        return [*lines, f"NumPyro was not measured: {result['numpyro_skipped']}"]
    for name in (name for name in result if name.startswith("ratio")):
        lines.append(f"ours over NumPyro's, {name.removeprefix('ratio_').replace('_', ' ')}: {result[name]:.1f} times")
    return lines


def _everything(result: dict[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')}: {value:.4g}" if isinstance(value, float) else f"{name.replace('_', ' ')}: {value}"
        for name, value in result.items()
    ]


_LINES = {"step": _step, "serve": _serve, "hmc": _hmc}


def _wipe() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
