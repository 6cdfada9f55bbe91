"""`bayesify evaluate`: every score of a run on its own test examples, on other data, and against unknown inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import By, Draws, Json, OwnNetwork, Run, Seed, complete_data, say_unprepared
from bayesify.cli.outcome import emit
from bayesify.files import plain
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.evaluation import Evaluation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify evaluate runs/digits\n\n"
        "bayesify evaluate runs/mnist --ood fashion-mnist --draws 50 --json\n\n"
        "bayesify evaluate runs/mine --data later.csv"
    )(evaluate)


def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(
            help="Other data with the same classes, or where the run's own is now. (default: its test part) For a run "
            "fitted in Python: an .npz file with x and y, as its network takes them.",
            autocompletion=complete_data,
        ),
    ] = None,
    ood: Annotated[
        str | None,
        typer.Option(
            help="Unknown inputs that it should doubt: a name, a file or a folder. (default: withheld classes)",
            autocompletion=complete_data,
        ),
    ] = None,
    draws: Draws = DRAWS,
    by: By = "draws",
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Score a run and write the scores into its metrics.json.

    Accuracy, error and coverage are fractions; NLL is in nats per example; with unknown inputs AUROC says how well
    doubt tells them from known ones.
    """
    result, evaluation = score_run(run, data, ood, draws, by, seed, network)
    say_unprepared(run)
    if as_json:
        emit(result)
        return
    unknown = "" if result["ood"] is None else f", against {result['ood']}"
    print(f"{run} on {result['data']}{unknown}")
    print(evaluation)


def score_run(
    run: Path, data: str | None, ood: str | None, draws: int, by: str, seed: int, network: str | None
) -> tuple[dict[str, Any], Evaluation]:
    """A run's scores, which are also written to its `metrics.json`."""
    from bayesify import runs
    from bayesify.evaluation import evaluate as score
    from bayesify.workflows import load, run_data, train

    config = runs.read_config(run)
    examples = run_data.examples_of(config, run, data)
    method = load.load_run(run, network)
    unknown, named = examples.unknown, examples.unknown_what
    if ood is not None:
        unknown, named = run_data.unknown_inputs(config, run, ood), ood
    evaluation = score(method, (examples.x, examples.y), ood=unknown, draws=draws, seed=seed, by=by)
    evaluation = evaluation.with_elbo(run_data.elbo_of(method, examples, draws, seed))
    about = {"run": str(run), "method": method.name, "data": examples.what, "ood": named, "by": by, "seed": seed}
    result: dict[str, Any] = plain(about | evaluation.to_dict())
    train.write_metrics(run, {name: value for name, value in result.items() if name != "run"})
    return result, evaluation
