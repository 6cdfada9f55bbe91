"""`bayesify compare`: several methods on one data set, at equal budgets, with the demo's table and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli import recipe_options as flags
from bayesify.cli.options import Draws, Json, said, settings_in
from bayesify.cli.outcome import emit
from bayesify.recipes.recipe import METHOD_NAMES, OF_METHOD, Recipe, make_recipe, read_settings

DEFAULT = Recipe()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify compare --data digits --withhold 9 --out runs/compared\n\n"
        "bayesify compare --data mine.csv --target price --methods point,ensemble,variational --seeds 5"
    )(compare)


def compare(
    context: typer.Context,
    methods: Annotated[str, typer.Option(metavar="A,B,...", help="Which methods.")] = ",".join(METHOD_NAMES),
    seeds: Annotated[int, typer.Option(help="How many seeds, for means with standard errors.")] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="For the report and the runs. (default: runs/DATA-compared)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a comparison that is there.")] = False,
    draws: Draws = 50,
    as_json: Json = False,
    data: flags.Data = DEFAULT.data,
    target: flags.Target = None,
    ignore: flags.Ignore = None,
    size: flags.Size = None,
    split: flags.Split = None,
    normalise: flags.Normalise = None,
    withhold: flags.Withhold = None,
    label_noise: flags.LabelNoise = None,
    validation: flags.Validation = None,
    network: flags.Network = DEFAULT.network,
    units: flags.Units = None,
    layers: flags.Layers = None,
    activation: flags.Activation = None,
    preset: flags.Preset = None,
    likelihood: flags.Likelihood = None,
    prior: flags.Prior = None,
    estimator: flags.Estimator = None,
    members: flags.Members = None,
    p: flags.P = None,
    rho: flags.Rho = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = DEFAULT.batch_size,
    learning_rate: flags.LearningRate = DEFAULT.learning_rate,
    optimizer: flags.Optimizer = DEFAULT.optimizer,
    schedule: flags.Schedule = DEFAULT.schedule,
    kl: flags.Kl = DEFAULT.kl,
    patience: flags.Patience = None,
    keep: flags.Keep = DEFAULT.keep,
    seed: flags.TrainingSeed = DEFAULT.seed,
    device: flags.Device = DEFAULT.device,
) -> None:
    """Train several methods on one data set and compare them: a table, one report.html, and a run for each.

    Budgets are counted in example-gradients; an ensemble is shown with all of it for each member, and shared out.
    --prior, --estimator and --rho are for variational alone, --members for ensemble and --p for mc-dropout; one that
    none of the methods takes is refused.
    """
    from bayesify.comparison import table
    from bayesify.recipes import comparing

    given = settings_in(said(context, locals()))
    given.pop("draws", None)
    own = read_settings({name: given.pop(name) for name in (*OF_METHOD, "prior") if name in given})
    recipe = make_recipe({}, given)
    folder = out or Path("runs") / f"{Path(recipe.data).stem}-compared"
    compared = comparing.compare(
        recipe,
        folder,
        methods=[name for name in methods.split(",") if name.strip()],
        settings=own,
        seeds=seeds,
        draws=draws,
        overwrite=overwrite,
    )
    if as_json:
        result: dict[str, Any] = {"out": str(folder), "report": str(compared.report), "seeds": seeds}
        runs = {label: str(path) for label, path in compared.folders.items()}
        emit(result | {"runs": runs, "rows": [row.to_dict() for row in compared.rows]})
        return
    from rich.console import Console

    Console(highlight=False).print(table(compared.rows))
    print(f"the report is in {compared.report}; the networks of the first seed are runs in {folder}")
