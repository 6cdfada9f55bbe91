"""`bayesify compare`: several methods on one data set, at equal budgets, with the demo's table and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli import recipe_flags as flags
from bayesify.cli.options import Json, said, settings_in
from bayesify.cli.outcome import FAILED, CommandError, emit
from bayesify.errors import choose
from bayesify.workflows.recipe import METHOD_NAMES, OF_METHOD, Recipe, make_recipe, read_settings

DEFAULT = Recipe()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify compare --data digits --withhold 9 --out runs/compared\n\n"
        "bayesify compare --data mine.csv --target price --methods point,ensemble,variational --seeds 5\n\n"
        "bayesify compare --against hmc --data moons --seeds 5"
    )(compare)


def compare(
    context: typer.Context,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"Any of {', '.join(METHOD_NAMES)}. (default: the first four; with --against all)",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="hmc",
            help="How far each method's answers are from those of HMC, with the same network and prior.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="For means with standard errors. (default: 1; with --against 5)", metavar="N")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="For the report and the runs. (default: runs/DATA-compared, runs/DATA-against-hmc)"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a comparison that is there.")] = False,
    draws: Annotated[
        int | None,
        typer.Option(help="Functions drawn for each answer. (default: 100; with --against 1000)", metavar="N"),
    ] = None,
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
    family: flags.Family = None,
    rank: flags.Rank = None,
    estimator: flags.Estimator = None,
    gradient: flags.Gradient = None,
    bound: flags.Bound = None,
    rho: flags.Rho = None,
    members: flags.Members = None,
    p: flags.P = None,
    hessian_init: flags.HessianInit = None,
    structure: flags.Structure = None,
    predictive: flags.LaplacePredictive = None,
    prior_precision: flags.PriorPrecision = None,
    begin: flags.Begin = None,
    chains: flags.Chains = None,
    samples: flags.Samples = None,
    burn_in: flags.BurnIn = None,
    cycles: flags.Cycles = None,
    friction: flags.Friction = None,
    warm_up: flags.WarmUp = None,
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
    A setting of a method goes to the methods that have it, and --prior to those with a posterior; one that none of the
    methods takes is refused.

    With --against hmc each seed is a data set of its own: moons, circles, gap (a regression), mnist (300 images) or
    yours. Printed are accuracy, NLL, ECE, agreement with HMC, total variation to its predictive, the ratio of
    predictive standard deviations and the cost; the last row, one half of the chains against the other, is the floor.
    An interrupted comparison goes on when the same command is given again.
    """
    given = settings_in(said(context, locals()))
    given.pop("draws", None)
    listed = None if methods is None else [name for name in methods.split(",") if name.strip()]
    chosen = {"methods": listed, "seeds": seeds, "draws": draws}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if against is not None:
        choose("reference", against, ("hmc",))
        _against(read_settings(given), out, overwrite, chosen, as_json=as_json)
        return
    own = read_settings({name: given.pop(name) for name in (*OF_METHOD, "prior") if name in given})
    _compare(make_recipe({}, given), out, own, overwrite, chosen, as_json=as_json)


def _compare(
    recipe: Recipe, out: Path | None, own: dict[str, Any], overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from bayesify.workflows.compare import recipe_comparison
    from bayesify.workflows.compare.comparison import table

    folder = out or Path("runs") / f"{Path(recipe.data).stem}-compared"
    compared = recipe_comparison.compare(recipe, folder, settings=own, overwrite=overwrite, **chosen)
    if as_json:
        result = {"out": str(folder), "report": str(compared.report), "seeds": chosen.get("seeds", 1)}
        runs = {label: str(path) for label, path in compared.folders.items()}
        emit(result | {"runs": runs, "rows": [row.to_dict() for row in compared.rows]})
        return
    from rich.console import Console

    Console(highlight=False).print(table(compared.rows))
    print(f"the report is in {compared.report}; the networks of the first seed are runs in {folder}")


def _against(
    given: dict[str, Any], out: Path | None, overwrite: bool, chosen: dict[str, Any], *, as_json: bool
) -> None:
    from bayesify.workflows.compare import hmc_report
    from bayesify.workflows.compare.against_hmc import compare_against

    given.setdefault("data", "moons")
    folder = out or Path("runs") / f"{Path(given['data']).stem}-against-hmc"
    try:
        found = compare_against(given, folder, overwrite=overwrite, **chosen)
    except KeyboardInterrupt:
        raise CommandError(f"interrupted; the same command goes on from {folder}", FAILED) from None
    if as_json:
        emit({"out": str(folder), "report": str(found.report), "figures": found.figures, **found.results})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(hmc_report.table(found.results))
    console.print(hmc_report.answer(found.results))
    print(f"the report is in {found.report}; every fit is a run in {folder}")
