"""`bayesify evaluate`: the scores of a run on its test examples, on other data, and against unknown inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bayesify.cli.options import By, Draws, Json, OtherData, OwnNetwork, Run, Seed, Unknown, say_unprepared
from bayesify.cli.output import emit
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
    data: OtherData = None,
    ood: Unknown = None,
    draws: Draws = DRAWS,
    by: By = "draws",
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Score a run and write the scores to its metrics.json.

    Accuracy, error and coverage are fractions. NLL is in nats per example. With unknown inputs, AUROC says how well
    uncertainty separates them from known ones.
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
    """Score a run and write the scores to its `metrics.json`."""
    from bayesify.evaluation import evaluate as score
    from bayesify.workflows import run_data, train

    method, examples = run_data.open_run(run, data, ood, network)
    evaluation = score(method, (examples.x, examples.y), ood=examples.unknown, draws=draws, seed=seed, by=by)
    evaluation = evaluation.with_elbo(run_data.elbo_of(method, examples, draws, seed))
    about = {"method": method.name, "data": examples.what, "ood": examples.unknown_what, "by": by, "seed": seed}
    metrics: dict[str, Any] = plain(about | evaluation.to_dict())
    train.write_metrics(run, metrics)
    return {"run": str(run)} | metrics, evaluation
