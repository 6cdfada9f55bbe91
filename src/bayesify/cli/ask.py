"""`bayesify ask`: which inputs of a pool to label next."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OwnNetwork, Run, Seed, say_unprepared
from bayesify.cli.output import CommandError, emit, say, write_csv
from bayesify.files import check_regular
from bayesify.workflows.recipe import DRAWS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify ask runs/mine pool.npz -n 10\n\n"
        "bayesify ask runs/mine pool.csv -n 20 --by batchbald --out asked.csv\n\n"
        "bayesify ask runs/mine pool.csv -n 20 --skip asked.csv"
    )(ask)


def ask(
    run: Run,
    pool: Annotated[
        list[str],
        typer.Argument(metavar="POOL...", help="Inputs without labels, in the forms that predict reads."),
    ],
    number: Annotated[int, typer.Option("-n", "--number", help="How many inputs to choose.")] = 10,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="What makes a label worth asking for: bald, batchbald, epig, entropy, variation_ratio or random; for "
            "numbers bald, variance or random.",
        ),
    ] = "bald",
    targets: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="For epig: the inputs that you want predictions for. (default: the pool)"),
    ] = None,
    skip: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file that ask wrote: inputs that have been labelled already."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a CSV file with the columns index, input and score.")
    ] = None,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Choose the inputs of a pool whose labels would teach a run most.

    The index counts the inputs of the pool from 0. batchbald chooses inputs that differ from each other, the others
    rank each input by itself.
    """
    from bayesify import runs
    from bayesify.decisions import ask as choose
    from bayesify.workflows import load, run_data
    from bayesify.workflows.inputs import read_inputs
    from bayesify.workflows.python_runs import taken_by

    if number < 1:
        raise CommandError(f"-n must be at least 1, got {number}")
    preparation = run_data.preparation_of(runs.read_config(run), run)
    read = read_inputs(pool, preparation, sys.stdin)
    goal = None if targets is None else read_inputs([targets], preparation, sys.stdin).raw
    if goal is not None and by != "epig":
        raise CommandError(f"--targets is for --by epig, got --by {by}: leave it out")
    method = load.load_run(run, network)
    preparation = taken_by(method, preparation)
    goal = None if goal is None else preparation.apply(goal)
    done = [] if skip is None else _indices(skip)
    inputs, name = preparation.apply(read.raw), by.replace("-", "_")
    asked = choose(method, inputs, number, name, targets=goal, skip=done, draws=draws, seed=seed)
    rows: list[dict[str, Any]] = [
        {"index": index, "input": read.names[index], "score": score}
        for index, score in zip(asked.indices, asked.scores.tolist(), strict=True)
    ]
    say_unprepared(run)
    if out is not None:
        write_csv(out, list(rows[0]), [list(row.values()) for row in rows])
    if as_json:
        about = {"run": str(run), "by": by, "pool": len(read.names), "out": None if out is None else str(out)}
        emit(about | {"indices": asked.indices, "scores": asked.scores.tolist(), "asked": rows})
        return
    print(f"{'index':>8}  {'score':<8}  input")
    for row in rows:
        print(f"{row['index']:>8}  {row['score']:<8.4g}  {row['input']}")
    if out is not None:
        say(f"{len(rows)} of {len(read.names)} inputs are in {out}")


def _indices(file: Path) -> list[int]:
    """The indices in a file that `ask --out` wrote."""
    try:
        check_regular(file)
        with file.open(encoding="utf-8", newline="") as stream:
            rows = csv.reader(stream)
            place = next(rows, []).index("index")
            return [int(row[place]) for row in rows if row]
    except OSError as problem:
        raise CommandError(f"cannot read {file}: {problem.strerror}") from None
    except (IndexError, ValueError, csv.Error):
        raise CommandError(f"{file} must have a column index with whole numbers, as ask --out writes it") from None
