"""`bayesify export`: a run as one file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.options import Json, MaxError, OwnNetwork, Run
from bayesify.cli.output import CommandError, emit, say
from bayesify.errors import counted

FORMATS = ("onnx", "torch-export", "safetensors", "module", "adapter")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify export runs/digits --format onnx --draws 30 --at-least 0.9 --out digits.onnx\n\n"
        "bayesify export runs/digits --format onnx --int8 --out small.onnx\n\n"
        "bayesify export runs/digits --format module --out plain.pt2\n\n"
        "bayesify export runs/tuned --network mine:net --format adapter --out tuned-adapter"
    )(export)


def export(
    run: Run,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write; a folder for an adapter.")],
    to: Annotated[
        str,
        typer.Option(
            "--format",
            help="onnx or torch-export: a graph with uncertainties. safetensors: the draws alone. module: the plain "
            "network (.pt2, or .safetensors for a state dict). adapter: the run without its frozen base.",
        ),
    ] = "onnx",
    draws: Annotated[
        int | None, typer.Option(help="Posterior draws in the file. (default: those of a guarantee, or 30)")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draws. (default: that of a guarantee, or 0)")] = None,
    by: Annotated[
        str, typer.Option("--by", help="draws, mean (the one function at the mean weights), or moments.")
    ] = "draws",
    at_least: Annotated[
        float | None, typer.Option(metavar="CONFIDENCE", help="Accept from this confidence on (classes).")
    ] = None,
    at_most: Annotated[
        float | None, typer.Option(metavar="STD", help="Accept up to this standard deviation (numbers).")
    ] = None,
    max_error: MaxError = None,
    draw: Annotated[
        int | None, typer.Option(help="For a module, the number of the draw. (default: the mean weights)")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="For onnx: round weights to eight bits.")] = False,
    prepared: Annotated[
        bool, typer.Option("--prepared", help="The graph takes prepared inputs: prepare raw inputs yourself.")
    ] = False,
    example: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="A batch of inputs of a run fitted in Python, where they are integers."),
    ] = None,
    network: OwnNetwork = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Write a run as one file that needs no bayesify: K fixed draws with both uncertainties, or the plain network.

    The outputs of a graph are probs (or mean), aleatoric, epistemic and accepted, for a batch of any size. It takes raw
    inputs where the run knows their preparation: pixels, or one number for each column of a table. Text has to be
    turned into numbers before: the list of categories is in the file.
    """
    from bayesify.errors import choose
    from bayesify.workflows import load
    from bayesify.workflows.export import export as write

    choose("format", to, FORMATS)
    method = load.load_run(run, network)
    try:
        made = write(
            method,
            out,
            to,
            draws=draws,
            seed=seed,
            by=by,
            at_least=at_least,
            at_most=at_most,
            max_error=max_error,
            example=None if example is None else _read(example),
            raw=False if prepared else None,
            draw=draw,
            int8=int8,
            overwrite=overwrite,
        )
    except FileExistsError as problem:
        raise CommandError(f"{problem.filename}: {problem.strerror}") from None
    except ImportError as problem:
        raise CommandError(str(problem)) from None
    rule = None if made.threshold is None else made.threshold.rule
    if as_json:
        emit(
            {
                "run": str(run),
                "out": str(made.path),
                "format": made.format,
                "bytes": made.size,
                "draws": made.draws,
                "outputs": list(made.outputs),
                "threshold": None if made.threshold is None else made.threshold.to_dict(),
                "raw_inputs": made.raw,
                "difference": made.difference,
            }
        )
        return
    print(f"{made.path}: {made.format}, {made.size / 1e6:.2f} MB{_draws(made.draws)}")
    if not made.outputs:
        return
    print(f"outputs: {', '.join(made.outputs)}; inputs are {'raw' if made.raw else 'as the network takes them'}")
    limit = "--at-least" if method.likelihood.kind == "classification" else "--at-most"
    print(f"accepted: {rule or f'every finite prediction. To set a limit, give {limit} or certify the run first'}")
    print(f"largest difference from predict: {made.difference:.1e}")
    if method.held == 1:
        say("the run has one set of weights: its epistemic uncertainty is zero")


def _draws(count: int) -> str:
    return f", {counted(count, 'draw')}" if count else ""


def _read(path: Path) -> object:
    from bayesify.data.npz import read_array

    return read_array(path, lambda names: names[0] if names else "")
