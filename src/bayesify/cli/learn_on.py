"""`bayesify learn-on`: new data for a trained run, with its posterior as the prior."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OwnNetwork, Run, say_unprepared
from bayesify.cli.output import emit
from bayesify.files import plain
from bayesify.workflows.recipe import DRAWS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "learn-on",
        epilog="Examples:\n\n"
        "bayesify learn-on runs/may --data june.csv --out runs/june\n\n"
        "bayesify learn-on runs/june --data july.csv --out runs/july --discount 0.1\n\n"
        "bayesify learn-on runs/site1 --data site2.npz --out runs/site2 --coreset 200",
    )(learn_on)


def learn_on(
    run: Run,
    data: Annotated[str, typer.Option(help="The new data: columns, sizes and classes as in the run.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder for the new run.")],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the new data. (default: a number)")
    ] = None,
    coreset: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep N of the new examples in the run, and rehearse all that were kept. (default: as before)",
        ),
    ] = None,
    discount: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Forget this share of the old data, for data that drift. (default: as before)"
        ),
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the new data that scores the result.")] = 0.2,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the new data. (default: enough for 2,000 steps)")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 128,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate. (default: the method's)")] = None,
    draws: Draws = DRAWS,
    seed: Annotated[int, typer.Option(help="Seed of the split, the order of examples and the noise.")] = 0,
    network: OwnNetwork = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
    as_json: Json = False,
) -> None:
    """Teach a variational run new data without the old data: its posterior is the prior.

    The new run is scored on a held-out share of the new data. If the old data file is still there, it is also scored on
    the old test part, which shows what was forgotten. Certify the new run again: its weights are new.
    """
    from bayesify.workflows import learn_on as workflow

    result = workflow.learn_on(
        run,
        data,
        out,
        task=task,
        coreset=coreset,
        discount=discount,
        test=test,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        draws=draws,
        seed=seed,
        network=network,
        overwrite=overwrite,
        progress=not as_json,
    )
    say_unprepared(run)
    if as_json:
        emit(plain(result))
        return
    print(f"{out}: learned {result['learned']:,} examples of {result['data'].removeprefix('all of ')} after {run}")
    for name, words in (("new", "new examples, kept aside"), ("old", "test part of the old data")):
        if name in result["before"]:
            print(f"{words}: {_changes(result['before'][name], result['after'][name])}")


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    return ", ".join(f"{name} {before[name]:.4f} before, {after[name]:.4f} after" for name in before)
