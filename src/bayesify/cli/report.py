"""`bayesify report`: an HTML report on one run, or on several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesify.cli.options import Draws, Json, OtherData, OwnNetwork, Seed, Unknown, say_unprepared
from bayesify.cli.output import CommandError, emit, say_beginning
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.evaluation.results import MethodResult
    from bayesify.workflows.run_data import Examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify report runs/digits\n\n"
        "bayesify report runs/plain runs/ensemble runs/variational --out comparison.html\n\n"
        "bayesify report runs/mine --data moved/mine.csv"
    )(report)


def report(
    run: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, as written by train.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write. (default: RUN/report.html, report.html for several)"),
    ] = None,
    data: OtherData = None,
    ood: Unknown = None,
    at_least: Annotated[float, typer.Option(help="Below this confidence a prediction is 'I do not know'.")] = 0.9,
    licence: Annotated[
        str, typer.Option(metavar="NAME", help="Licence of the model, for its model card: apache-2.0, mit, ...")
    ] = "other",
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML report, with its numbers in a JSON file beside it.

    Each run also gets a model card (README.md), and its scores in metrics.json.
    """
    say_beginning(f"writing a report of {', '.join(map(str, run))}")
    from bayesify import runs
    from bayesify.report.comparison import comparison_report
    from bayesify.workflows import run_data

    path = out or (run[0] / "report.html" if len(run) == 1 else Path("report.html"))
    if path.suffix.lower() != ".html":
        raise CommandError(f"--out must name an .html file, got {path}")
    results, examples = _results(run, data, ood, draws, seed, network)
    config = runs.read_config(run[0])
    about = config.get("data") or {}
    preparation = run_data.preparation_of(config, run[0])
    images = run_data.as_images(examples.x, preparation)
    unknown = None if examples.unknown is None else run_data.as_images(examples.unknown, preparation)
    written = comparison_report(
        results,
        path=path,
        title=f"{about.get('name') or run[0].resolve().name}: {', '.join(result.label for result in results)}",
        subtitle=f"{len(examples.x):,} examples, {examples.what}; {_draws_of(results)}",
        class_names=about.get("class_names"),
        known=None if images is None else (images, examples.y),
        unknown=unknown,
        unknown_name=examples.unknown_what or "the unknown inputs",
        inputs=examples.x,
        at_least=at_least,
        licence=licence,
        tested_on=examples.what,
    )
    say_unprepared(*run)
    if as_json:
        names = [result.name for result in results]
        keys = [name if names.count(name) == 1 else result.label for name, result in zip(names, results, strict=True)]
        scores = {key: result.evaluation.to_dict() for key, result in zip(keys, results, strict=True)}
        emit({"report": str(written), "runs": scores})
    else:
        print(f"the report is in {written}")


def _draws_of(results: list[MethodResult]) -> str:
    """The draws that predictions really have: an ensemble has its members, a plain network one set of weights."""
    counts = {result.predictive.draws for result in results}
    if len(counts) > 1:
        return f"{min(counts)} to {max(counts)} draws"
    return "1 draw" if counts == {1} else f"{counts.pop()} draws"


def _results(
    folders: list[Path], data: str | None, ood: str | None, draws: int, seed: int, network: str | None
) -> tuple[list[MethodResult], Examples]:
    """One result per run, all on the same test examples."""
    from bayesify import runs
    from bayesify.decisions import saved_check
    from bayesify.evaluation import score
    from bayesify.evaluation.results import MethodResult
    from bayesify.plots import style
    from bayesify.workflows import guarantees, run_data, train, unknown_check
    from bayesify.workflows.simple_models import simple_models

    results: list[MethodResult] = []
    first: Examples | None = None
    names = [runs.read_config(folder)["method"] for folder in folders]
    used = guarantees.used_rows(*folders)
    for folder, name in zip(folders, names, strict=True):
        method, everything = run_data.open_run(folder, data, ood, network)
        examples = guarantees.without(everything, used)
        if not len(examples.y):
            raise CommandError(f"every example of {everything.what} was used to calibrate a run: give others, --data")
        if first is not None and (len(first.y) != len(examples.y) or not bool((first.y == examples.y).all())):
            raise CommandError(
                f"{folder} was tested on other examples than {folders[0]}: write a report for each of them"
            )
        first = first or examples
        predictive = method.predict(examples.x, draws=draws, seed=seed)
        unknown = None if examples.unknown is None else method.predict(examples.unknown, draws=draws, seed=seed)
        evaluation = score(predictive, examples.y, unknown).with_checks(method)
        evaluation = evaluation.with_elbo(run_data.elbo_of(method, examples, draws, seed))
        about = {"method": name, "data": examples.what, "ood": examples.unknown_what, "by": "draws", "seed": seed}
        train.write_metrics(folder, about | evaluation.to_dict())
        results.append(
            MethodResult(
                name=name,
                label=style.TITLES.get(name, name) if names.count(name) == 1 else folder.name,
                method=method,
                evaluation=evaluation,
                predictive=predictive,
                targets=examples.y,
                unknown=unknown,
                history=method.history,
                inputs=examples.x,
                baselines=simple_models(method, examples, folder),
                unknown_check=unknown_check.score_check(saved_check(method), examples.x, examples.unknown),
            )
        )
    assert first is not None
    return results, first
