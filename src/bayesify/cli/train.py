"""`bayesify train`: from a data set by name or file to a run folder, and on from an interruption."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import Json, complete_data, complete_method, complete_prior
from bayesify.cli.outcome import FAILED, CommandError, emit
from bayesify.recipes.recipe import Recipe, make_recipe, read_config_file

if TYPE_CHECKING:
    from bayesify.recipes.training import Trained

DATA, NETWORK, MODEL, TRAINING, RUN = "Data", "Network", "Model", "Training", "Run"
DEFAULT = Recipe()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify train --data digits --withhold 9 --epochs 30 --out runs/digits\n\n"
        "bayesify train --data mine.csv --target price --validation 0.2 --patience 5 --keep best --out runs/mine\n\n"
        "bayesify train --data mnist --units 400 --prior scale-mixture:0.75,1,0.000335 --normalise 126 --epochs 30\n\n"
        "bayesify train --data photos/ --network cnn --size 32 --method mc-dropout --p 0.2 --out runs/photos\n\n"
        "bayesify train --resume runs/mine --extend 10\n\n"
        "bayesify train --config runs/mine/config.json --seed 1 --out runs/mine-1"
    )(train)


def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            help="A data set's name (see bayesify data), a .csv, .tsv or .npz file, or a folder of pictures.",
            rich_help_panel=DATA,
            autocompletion=complete_data,
        ),
    ] = DEFAULT.data,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The CSV's target, by name or number. (default: the last)", rich_help_panel=DATA
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A CSV column to leave out.", rich_help_panel=DATA)
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(metavar="PIXELS", help="Resize a folder's pictures to this height and width.", rich_help_panel=DATA),
    ] = None,
    split: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="A published split's number, or the seed of the test part.", rich_help_panel=DATA
        ),
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="126, 255, standard, symmetric or none. (default: 255 for images, standard for tables)",
            rich_help_panel=DATA,
        ),
    ] = None,
    withhold: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="Classes kept from training, as unknown test inputs.", rich_help_panel=DATA),
    ] = None,
    label_noise: Annotated[
        str | None,
        typer.Option(
            metavar="A,B=CHANCE", help="Swap labels of two classes at random, as 1,7=0.3.", rich_help_panel=DATA
        ),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Part of the training examples to watch training by.", rich_help_panel=DATA
        ),
    ] = None,
    network: Annotated[
        str, typer.Option(help="mlp, cnn, or your own as module:factory.", rich_help_panel=NETWORK)
    ] = DEFAULT.network,
    units: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]", help="Hidden units of an mlp, one width or each. (default: 400)", rich_help_panel=NETWORK
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Hidden layers of an mlp. (default: 2)", rich_help_panel=NETWORK)
    ] = None,
    activation: Annotated[
        str | None,
        typer.Option(help="relu, tanh, gelu, silu, elu or softplus. (default: relu)", rich_help_panel=NETWORK),
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(metavar="RATE", help="Dropout in the network.", rich_help_panel=NETWORK)
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Of a cnn: lenet, study-c or study-e. (default: lenet)", rich_help_panel=NETWORK),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="point, ensemble, mc-dropout or variational.", rich_help_panel=MODEL, autocompletion=complete_method
        ),
    ] = DEFAULT.method,
    prior: Annotated[
        str | None,
        typer.Option(
            help="As normal:1, laplace:1, scale-mixture:0.75,1,0.000335. (default: normal:1 for variational, else none)",
            rich_help_panel=MODEL,
            autocompletion=complete_prior,
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="categorical, bernoulli, gaussian:learned, gaussian:0.1, gaussian:heteroscedastic, poisson, "
            "gaussian-logits. (default: by the data)",
            rich_help_panel=MODEL,
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(help="Of variational: weight, local or flipout. (default: weight)", rich_help_panel=MODEL),
    ] = None,
    bayesian: Annotated[
        str, typer.Option(help="Which weights are random: all, last_layer, or name patterns.", rich_help_panel=MODEL)
    ] = "all",
    members: Annotated[
        int | None, typer.Option(metavar="N", help="Of an ensemble. (default: 5)", rich_help_panel=MODEL)
    ] = None,
    p: Annotated[
        float | None,
        typer.Option("--p", metavar="RATE", help="Of mc-dropout. (default: 0.2)", rich_help_panel=MODEL),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="Where weights start: given, fresh, normal:0.1, uniform:-0.2,0.2.", rich_help_panel=MODEL),
    ] = None,
    rho: Annotated[
        str | None,
        typer.Option(help="Where widths start before softplus: -5 or uniform:-5,-4. (default: -5)", rich_help_panel=MODEL),
    ] = None,
    epochs: Annotated[int, typer.Option(rich_help_panel=TRAINING, help="Passes over the data.")] = DEFAULT.epochs,
    batch_size: Annotated[
        int, typer.Option(rich_help_panel=TRAINING, help="Examples per step.")
    ] = DEFAULT.batch_size,
    learning_rate: Annotated[
        float, typer.Option(rich_help_panel=TRAINING, help="Of the mean loss over a batch.")
    ] = DEFAULT.learning_rate,
    optimizer: Annotated[
        str, typer.Option(rich_help_panel=TRAINING, help="A name of torch's, as adam or sgd:momentum=0.9.")
    ] = DEFAULT.optimizer,
    schedule: Annotated[
        str, typer.Option(rich_help_panel=TRAINING, help="constant, cosine, linear or step:0.5,0.1.")
    ] = DEFAULT.schedule,
    draws: Annotated[
        int, typer.Option(rich_help_panel=TRAINING, help="Weight draws per step of variational.")
    ] = DEFAULT.draws,
    kl: Annotated[
        str,
        typer.Option("--kl", rich_help_panel=TRAINING, help="uniform or reweighted, with ,warm-up=5,temperature=0.5."),
    ] = DEFAULT.kl,
    patience: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCHS", rich_help_panel=TRAINING, help="Stop when validation has not improved for so long."
        ),
    ] = None,
    keep: Annotated[
        str, typer.Option(rich_help_panel=TRAINING, help="The last state, or the best on validation: last, best.")
    ] = DEFAULT.keep,
    seed: Annotated[
        int, typer.Option(rich_help_panel=TRAINING, help="Of weights, noise and shuffling (not of the split).")
    ] = DEFAULT.seed,
    device: Annotated[
        str, typer.Option(rich_help_panel=TRAINING, help="cpu, cuda, cuda:1, mps.")
    ] = DEFAULT.device,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="The run's folder. (default: runs/DATA-METHOD)", rich_help_panel=RUN),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.", rich_help_panel=RUN)
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings by name in JSON or TOML, or a run's config.json; flags win.",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with an interrupted run, to the same bits.", rich_help_panel=RUN),
    ] = None,
    extend: Annotated[
        int | None,
        typer.Option(metavar="EPOCHS", help="With --resume: so many epochs beyond the plan.", rich_help_panel=RUN),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a network and keep it as a run: a folder with the model, its configuration and its history.

    An interrupt (Ctrl-C) leaves a checkpoint to resume from and exits with code 1.
    """
    given = _given(context)
    if resume is not None:
        trained = _resume(resume, extend, given, data if "data" in given else None, network, device)
    elif extend is not None:
        raise CommandError("--extend adds epochs to a run that is resumed: say --resume RUN too")
    else:
        names = {field.name for field in fields(Recipe)}
        settings = {name: _split(context.params[name]) for name in given if name in names}
        recipe = make_recipe({} if config is None else read_config_file(config), settings)
        trained = _train(recipe, out or _default_folder(recipe), overwrite=overwrite)
    result = _result(trained)
    if as_json:
        emit(result)
    else:
        _print(result)


def _train(recipe: Recipe, out: Path, *, overwrite: bool) -> Trained:
    from bayesify.recipes import training

    try:
        return training.train(recipe, out, overwrite=overwrite)
    except training.Interrupted as stopped:
        raise _interrupted(stopped.run, stopped.step) from None


def _resume(run: Path, extend: int | None, given: set[str], data: str | None, network: str, device: str) -> Trained:
    from bayesify.recipes import training

    for name in sorted(given - {"resume", "extend", "data", "network", "device", "as_json"}):
        flag = f"--{name.replace('_', '-')}"
        hint = "--extend adds epochs" if name == "epochs" else "start a new one with --config RUN/config.json"
        raise CommandError(f"{flag} cannot change a run that is resumed; {hint}")
    if extend is None and training.is_complete(run):
        raise CommandError(f"{run} is complete: add epochs with --extend, or evaluate it")
    try:
        return training.resume(
            run,
            extend=extend or 0,
            data=data,
            network=network if "network" in given else None,
            device=device if "device" in given else None,
        )
    except training.Interrupted as stopped:
        raise _interrupted(stopped.run, stopped.step) from None


def _interrupted(run: Path | None, step: int) -> CommandError:
    if run is None:
        return CommandError("interrupted before training began; nothing was written", FAILED)
    return CommandError(f"interrupted after step {step}; go on with: bayesify train --resume {run}", FAILED)


def _given(context: typer.Context) -> set[str]:
    """The options that were said, as against those left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _split(value: Any) -> Any:
    """A repeated option with commas inside is one list."""
    return [word for part in value for word in part.split(",")] if isinstance(value, list) else value


def _default_folder(recipe: Recipe) -> Path:
    return Path("runs") / f"{Path(recipe.data).stem}-{recipe.method}"


def _result(trained: Trained) -> dict[str, Any]:
    method, about = trained.method, trained.notes
    last = method.history.records[-1] if method.history.records else {}
    names = ("loss", "nll", "kl", "validation_nll", "validation_error")
    return {
        "run": str(trained.run),
        "data": about["name"],
        "method": method.name,
        "weights": method.network.size,
        "random_weights": method.network.random_size,
        "examples": about["examples"],
        "withheld": about["withheld"],
        "epochs": last.get("epoch", 0),
        "steps": last.get("step", 0),
        "seconds": round(sum(record["seconds"] for record in method.history.records), 3),
        **{name: last[name] for name in names if name in last},
        "stopped": method.history.stopped or None,
    }


def _print(result: dict[str, Any]) -> None:
    examples = result["examples"]
    held = f", {examples['validation']} to watch by" if examples["validation"] else ""
    print(f"{result['method']} on {result['data']}: {examples['train']} training examples{held}")
    print(f"{result['weights']:,} weights, {result['epochs']} epochs in {result['seconds']:.1f} s")
    if result["withheld"]:
        print(f"withheld from training: {', '.join(result['withheld'])}")
    names = ("loss", "nll", "validation_nll", "validation_error")
    print(", ".join(f"{name.replace('_', ' ')} {result[name]:.4f}" for name in names if name in result))
    if result["stopped"]:
        print(f"stopped early: {result['stopped']}")
    print(f"the run is in {result['run']}; next: bayesify evaluate {result['run']}")
