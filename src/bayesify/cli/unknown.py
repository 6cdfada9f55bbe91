"""`bayesify unknown`: teach a run to say "I do not know" to inputs that are unlike its training data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OwnNetwork, Run, Seed, Unknown, say_unprepared
from bayesify.cli.output import CommandError, emit, say
from bayesify.workflows.recipe import DRAWS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify unknown runs/digits\n\n"
        "bayesify unknown runs/mnist --ood fashion-mnist --coverage 0.98\n\n"
        "bayesify unknown runs/mine --data training.npz --by mahalanobis --layer last\n\n"
        "bayesify unknown runs/mine --remove"
    )(unknown)


def unknown(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The training inputs, where the run's data has moved or it was fitted in Python. (default: the run's "
            "training part)",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="What is measured: knn, mahalanobis, entropy, mutual-information, confidence, spread or energy."
        ),
    ] = "knn",
    coverage: Annotated[float, typer.Option(help="Share of the training inputs to accept.")] = 0.99,
    layer: Annotated[
        str | None,
        typer.Option(
            help="For knn and mahalanobis: input, edges (of small grey images), last (hidden layer), or the name of a "
            "module. (default: input up to 1,024 numbers, last beyond)"
        ),
    ] = None,
    neighbours: Annotated[int, typer.Option(help="For knn: the neighbour whose distance counts.")] = 5,
    ood: Unknown = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the check of the run.")] = False,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Fit a check for unknown inputs on the training data of a run, and save it with the run.

    predict, evaluate, the server, the report and the studio use it from then on: an input that is unlike the training
    data is answered "I do not know". The check sees no unknown inputs; --ood only scores it.
    """
    from bayesify import runs
    from bayesify.data import DataError
    from bayesify.errors import RunError
    from bayesify.workflows import load, run_data, unknown_check

    file = run / runs.UNKNOWN
    if remove:
        runs.read_config(run)
        if not file.is_file():
            raise CommandError(f"{run} has no check for unknown inputs")
        file.unlink()
        if as_json:
            emit({"run": str(run), "removed": True})
        else:
            print(f"{run} answers every input again")
        return
    inputs = unknown_check.training_inputs(run, data)
    method = load.load_run(run, network)
    check = unknown_check.fit_check(
        method,
        run,
        inputs,
        by.replace("-", "_"),
        coverage=coverage,
        layer=layer,
        neighbours=neighbours,
        draws=draws,
        seed=seed,
    )
    result: dict[str, Any] = {"run": str(run), "examples": len(inputs), "file": str(file)}
    try:
        _, examples = run_data.open_run(run, None, ood, network)
    except (DataError, RunError) as problem:
        if ood is not None:
            raise
        say(f"the check is saved, but not scored: {problem}")
        result |= {"by": check.by, "layer": check.layer, "coverage": check.coverage, "threshold": check.threshold}
    else:
        result |= {"data": examples.what, "ood": examples.unknown_what}
        result |= unknown_check.score_check(check, examples.x, examples.unknown)
    say_unprepared(run)
    if as_json:
        emit(result)
        return
    print(f"{run}: a check for unknown inputs by {check.by}, fitted on {len(inputs):,} training inputs")
    if "accepted" in result:
        print(f"it accepts {result['accepted']:.1%} of {result['data']}")
    if "unknown_accepted" in result:
        print(f"it accepts {result['unknown_accepted']:.1%} of the unknown inputs ({result['ood']})")
    print(f"written to {file}")
