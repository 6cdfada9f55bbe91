"""`bayesify reproduce`: the studies' experiments, each by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.engine_flags import Address, EngineName, Jobs, PartOf, Threads, engine_of, unfinished_is_fine
from bayesify.cli.options import Json
from bayesify.cli.output import FAILED, CommandError, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify reproduce --list\n\n"
        "bayesify reproduce coin line --preset quick --json\n\n"
        "bayesify reproduce mnist-table --preset full --device cuda\n\n"
        "bayesify reproduce sbc --preset full --engine ray --address auto"
    )(reproduce)


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Experiments, or all.")] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="quick: minutes on two cores. full: as in the study, with several seeds. cpu: an hour of one core, "
            "where full needs a GPU (cifar10)."
        ),
    ] = "quick",
    listed: Annotated[bool, typer.Option("--list", help="Name the experiments and what each asks.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Each gets a folder NAME-PRESET in it.")] = Path(
        "runs/reproduce"
    ),
    publish: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy pages, numbers and figures there, as docs/results has them."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda.")] = "cpu",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Do again what is there.")] = False,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    part: PartOf = None,
    as_json: Json = False,
) -> None:
    """Run the studies' experiments: what was published, what we find, and what the difference means.

    Each can be stopped at any time: the same command goes on where it was. Without a name the experiments are listed.
    """
    from bayesify.errors import choose
    from bayesify_studies import experiments
    from bayesify_studies.experiments.framework.experiment import PRESETS

    choose("preset", preset, PRESETS)
    wanted = list(dict.fromkeys(names or []))
    if "all" in wanted:
        wanted = list(experiments.NAMES)
    chosen = [experiments.find(name) for name in wanted]
    if listed or not chosen:
        _list(as_json=as_json)
        return
    told: dict[str, Any] = {}
    where = engine_of(engine, address, jobs, threads, part, device)
    for experiment in chosen:
        with unfinished_is_fine(as_json=as_json):
            results = _run(experiment, out, publish, preset=preset, device=device, engine=where, overwrite=overwrite)
            told[experiment.name] = results
            if not as_json:
                _print(results, out / f"{experiment.name}-{preset}")
    if as_json:
        emit({"results": told})


def _run(experiment: Any, out: Path, publish: Path | None, **settings: Any) -> dict[str, Any]:
    from bayesify.workflows.train import check_device
    from bayesify_studies.experiments.framework.experiment import reproduce as run
    from bayesify_studies.experiments.framework.publishing import publish as copy

    if settings["engine"].here:
        check_device(settings["device"])
    folder = out / f"{experiment.name}-{settings['preset']}"
    try:
        results = run(experiment, folder, **settings)
    except KeyboardInterrupt:
        raise CommandError("interrupted; the same command goes on where it stopped", FAILED) from None
    if publish is not None:
        copy(folder, publish)
    return results


def _list(*, as_json: bool) -> None:
    from bayesify_studies import experiments

    found = [experiments.find(name) for name in experiments.NAMES]
    if as_json:
        emit({"experiments": [{"name": one.name, "study": one.study, "question": one.question} for one in found]})
        return
    for one in found:
        print(f"{one.name:18} study {one.study}  {one.question}")


def _print(results: dict[str, Any], folder: Path) -> None:
    print(f"{results['title']}\n\n{results['answer']}\n")
    for line in results["lines"]:
        print(f"- {line['what']}: published {line['published']}; ours {line['ours']}. {line['meaning']}")
    for one in results["shortfalls"]:
        print(f"! {one}")
    print(f"\nthe page is {folder / 'report.html'} ({results['seconds']:.0f} s)\n")
