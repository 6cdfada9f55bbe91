"""`bayesify train`: train on a data set and save the run, or resume an interrupted run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.engine_flags import PANEL, Address, EngineName, Jobs, PartOf, Threads, engine_of, unfinished_is_fine
from bayesify.cli.options import Json, name_of, refuse_missing
from bayesify.cli.output import FAILED, CommandError, emit, say_beginning
from bayesify.cli.recipe_flags import given_flags, in_flags, takes_recipe
from bayesify.errors import counted
from bayesify.workflows.recipe import Recipe, make_recipe, read_config_file

if TYPE_CHECKING:
    from bayesify.jobs import Engine
    from bayesify.workflows.train import Trained

RUN = "Run"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify train --data digits --withhold 9 --epochs 30 --out runs/digits\n\n"
        "bayesify train --data mine.csv --target price --validation 0.2 --patience 5 --keep best --out runs/mine\n\n"
        "bayesify train --data mnist --units 400 --prior scale-mixture:0.75,1,0.000335 --normalise 126 --epochs 30\n\n"
        "bayesify train --data photos/ --network cnn --size 32 --method mc-dropout --p 0.2 --out runs/photos\n\n"
        "bayesify train --data moons --method hmc --units 5 --layers 2 --activation tanh --chains 64 --out runs/hmc\n\n"
        "bayesify train --data mnist --method ensemble --members 8 --slices 4 --engine ray --out runs/ensemble\n\n"
        "bayesify train --resume runs/mine --extend 10\n\n"
        "bayesify train --config runs/mine/config.json --seed 1 --out runs/mine-1"
    )(train)


@takes_recipe()
def train(
    context: typer.Context,
    *,
    settings: dict[str, Any],
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Folder of the run. (default: runs/DATA-METHOD)", rich_help_panel=RUN),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is already there.", rich_help_panel=RUN)
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A JSON or TOML file of settings by name, or a run's config.json; flags override it. A network "
            "module:factory has to be named with --network as well.",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Finish an interrupted run, to the same bits.", rich_help_panel=RUN),
    ] = None,
    extend: Annotated[
        int | None,
        typer.Option(
            metavar="EPOCHS",
            help="With --resume: train for this many more epochs (hmc: draws of each chain).",
            rich_help_panel=RUN,
        ),
    ] = None,
    slices: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Train the members of an ensemble, or the chains of hmc, in this many independent parts.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    part: PartOf = None,
    as_json: Json = False,
) -> None:
    """Train a network and save it as a run: a folder with the model, its configuration and its history.

    Ctrl-C leaves a checkpoint to resume from and exits with code 1. With --slices, the same command continues.
    """
    where = {"engine": engine, "address": address, "jobs": jobs, "threads": threads, "part": part}
    named = [name for name in where if name in given_flags(context)]
    if slices is None and named:
        raise CommandError(
            f"--{named[0]} is for independent parts: cut an ensemble or the chains of hmc with --slices N; start one "
            "training over several processes with torchrun"
        )
    if slices is not None and resume is not None:
        raise CommandError("--slices is for a new run: to go on with one, give its command again without --resume")
    if resume is not None:
        trained = _resume(resume, extend, settings, given_flags(context))
    elif extend is not None:
        raise CommandError("--extend adds epochs to a run: give the run with --resume RUN")
    else:
        base = {} if config is None else read_config_file(config, settings.get("network"))
        recipe = make_recipe(base, settings)
        refuse_missing(recipe.data)
        folder = out or Path("runs") / f"{name_of(recipe.data)}-{recipe.method}"
        if slices is None:
            trained = _train(recipe, folder, overwrite=overwrite)
        else:
            runs_on = engine_of(engine, address, jobs, threads, part, recipe.device)
            done = _train_slices(recipe, folder, slices, runs_on, overwrite=overwrite, as_json=as_json)
            if done is None:
                return
            trained = done
    from bayesify.training.loop import Plan

    result = _result(trained)
    plan = trained.method.plan
    if extend and isinstance(plan, Plan) and plan.schedule != "constant":
        result["schedule"] = f"{plan.schedule}, now spread over {counted(plan.epochs, 'epoch')}"
    if as_json:
        emit(result)
    else:
        _print(result)


def _train(recipe: Recipe, out: Path, *, overwrite: bool) -> Trained:
    say_beginning(f"training {recipe.method} on {recipe.data}")
    from bayesify.training.warnings import without_warnings
    from bayesify.workflows import train as training

    try:
        with without_warnings():
            return training.train(recipe, out, overwrite=overwrite)
    except training.InterruptedTrainingError as stopped:
        raise _interrupted(stopped.run, stopped.step) from None


def _train_slices(
    recipe: Recipe, out: Path, slices: int, engine: Engine, *, overwrite: bool, as_json: bool
) -> Trained | None:
    from bayesify.training.warnings import without_warnings
    from bayesify.workflows.train_slices import train_in_slices

    try:
        with without_warnings(), unfinished_is_fine(as_json=as_json):
            return train_in_slices(recipe, out, slices, engine, overwrite=overwrite)
    except KeyboardInterrupt:
        raise CommandError("interrupted; the same command goes on with the next slice", FAILED) from None
    return None


def _resume(run: Path, extend: int | None, settings: dict[str, Any], flags: set[str]) -> Trained:
    from bayesify.training.warnings import without_warnings
    from bayesify.workflows import train as training
    from bayesify.workflows.load import is_complete

    for name in sorted(flags - {"resume", "extend", "data", "network", "device", "as_json"}):
        flag = f"--{name.replace('_', '-')}"
        hint = "add epochs with --extend" if name == "epochs" else f"start a new run with --config {run}/config.json"
        raise CommandError(f"{flag} cannot change a run that is resumed: {hint}")
    complete = is_complete(run)
    if complete and extend is None:
        raise CommandError(f"{run} is complete: add epochs with --extend, or score it with bayesify evaluate")
    where: dict[str, Any] = {name: settings.get(name) for name in ("data", "network", "device")}
    try:
        with without_warnings():
            return training.resume(run, extend=extend or 0, **where)
    except training.InterruptedTrainingError as stopped:
        raise _interrupted(stopped.run, stopped.step) from None


def _interrupted(run: Path | None, step: int) -> CommandError:
    if run is None:
        return CommandError("interrupted before training began; nothing was written", FAILED)
    return CommandError(f"interrupted after step {step}; resume with: bayesify train --resume {run}", FAILED)


def _result(trained: Trained) -> dict[str, Any]:
    from bayesify.methods.after_fit import low_elbo
    from bayesify.workflows.prepare import describe_table

    low = low_elbo(trained.method)
    method, about = trained.method, trained.notes
    last = method.history.records[-1] if method.history.records else {}
    names = ("loss", "nll", "kl", "validation_nll", "validation_error")
    return {
        "run": str(trained.run),
        "data": about["name"],
        "method": method.name,
        "chosen": method.chosen,
        "weights": method.network.size,
        "random_weights": method.network.random_size,
        "examples": about["examples"],
        "understood": describe_table(about),
        "notices": [*(about.get("notices") or []), *_still_falling(trained), *([] if low is None else [low])],
        "withheld": about["withheld"],
        "epochs": last.get("epoch", 0),
        "steps": last.get("step", 0),
        "seconds": round(sum(record["seconds"] for record in method.history.records), 3),
        **{name: last[name] for name in names if name in last},
        "stopped": method.history.stopped or None,
        "alerts": [in_flags(alert) for alert in method.warnings.values()],
    }


def _still_falling(trained: Trained) -> list[str]:
    """A note where a longer training may do better: no reason to distrust a fit whose predictions passed the checks."""
    from bayesify.training.warnings import not_converged

    # The chains of HMC are judged by their predictions; validation ended a training that stopped early.
    if trained.method.name == "hmc" or trained.method.history.stopped_early:
        return []
    told = not_converged(trained.method.history["loss"])
    return [f"{told} (bayesify train --resume {trained.run} --extend EPOCHS)"] if told else []


def _print(result: dict[str, Any]) -> None:
    examples = result["examples"]
    validation = f", {counted(examples['validation'], 'validation example')}" if examples["validation"] else ""
    print(f"{result['method']} on {result['data']}: {counted(examples['train'], 'training example')}{validation}")
    if result["chosen"] and not sys.stderr.isatty():  # a person has read it before training
        print(result["chosen"])
    if result["understood"]:
        print(result["understood"])
    for notice in result["notices"]:
        print(f"note: {notice}")
    done = counted(result["steps"], "iteration") if result["method"] == "hmc" else counted(result["epochs"], "epoch")
    print(f"{result['weights']:,} weights, {done} in {result['seconds']:.1f} s")
    if "schedule" in result:
        print(f"the schedule is {result['schedule']}")
    if result["withheld"]:
        print(f"withheld from training: {', '.join(result['withheld'])}")
    names = ("loss", "nll", "validation_nll", "validation_error")
    print(", ".join(f"{name.replace('_', ' ')} {result[name]:.4f}" for name in names if name in result))
    for alert in result["alerts"]:
        print(f"before you trust it: {alert}")
    if result["stopped"]:
        print(f"stopped early: {result['stopped']}")
    print(f"the run is in {result['run']}; next: bayesify evaluate {result['run']}")
