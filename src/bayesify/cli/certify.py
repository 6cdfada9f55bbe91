"""`bayesify recalibrate` and `bayesify certify`: correct probabilities, and guarantee what they are worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import Draws, Json, OtherData, OwnNetwork, Run, Seed, say_unprepared
from bayesify.cli.output import CommandError, emit, say
from bayesify.files import plain
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.methods import Method
    from bayesify.workflows.guarantees import Part
    from bayesify.workflows.run_data import Examples

Share = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the examples to use, at random; the rest can score the result. (default: half of the run's test "
        "part, all of other data)",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify recalibrate runs/mnist --share 0.2\n\n"
        "bayesify recalibrate runs/mine --data later.csv --by isotonic"
    )(recalibrate)
    app.command(
        epilog="Examples:\n\n"
        "bayesify certify runs/mnist --max-error 0.01\n\n"
        "bayesify certify runs/mine --data later.csv --alpha 0.05 --population 'orders from our shop in May'\n\n"
        "bayesify certify runs/prices --max-error 0.1 --tolerance 5000"
    )(certify)


def recalibrate(
    run: Run,
    data: OtherData = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Classes: temperature, vector or isotonic. Numbers: variance or isotonic. (default: the first)"
        ),
    ] = None,
    share: Share = None,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Correct the probabilities of a run on held-out examples; every later prediction is corrected.

    The examples are remembered: evaluate and certify leave them out. Certify the run after this, not before.
    """
    from bayesify.decisions import recalibrate as fit
    from bayesify.evaluation import evaluate as score
    from bayesify.workflows import guarantees, run_data

    method, examples = run_data.open_run(run, data, network=network)
    for notice in examples.notices:
        say(notice)
    part = guarantees.choose_part(method, examples, share, seed)
    before = score(method, (part.x, part.y), draws=draws, seed=seed)
    with _naming(part, examples, method):
        fit(method, (part.x, part.y), by, draws=draws, seed=seed)
    after = score(method, (part.x, part.y), draws=draws, seed=seed)
    _say_trained_on(run, examples, part)
    guarantees.mark_used(method, part)
    guarantees.write(method, run)
    say_unprepared(run)
    assert method.recalibration is not None
    key = "ece" if before.ece is not None else "crps"
    result: dict[str, Any] = {"run": str(run), "data": part.what, "examples": len(part.y)}
    result |= {"recalibration": method.recalibration.to_dict()}
    result |= {"nll_before": before.nll, "nll_after": after.nll}
    result |= {f"{key}_before": getattr(before, key), f"{key}_after": getattr(after, key)}
    if as_json:
        emit(plain(result))
        return
    print(f"{run}: recalibrated by {method.recalibration.name} on {len(part.y):,} examples ({part.what})")
    print(f"on these examples: nll {before.nll:.4f} before, {after.nll:.4f} after; ", end="")
    print(f"{key} {getattr(before, key):.4f} before, {getattr(after, key):.4f} after")
    print("other examples score it fairly: bayesify evaluate leaves these out")


def certify(
    run: Run,
    data: OtherData = None,
    max_error: Annotated[
        float | None,
        typer.Option(metavar="ERROR", help="Guarantee that at most this share of the accepted predictions is wrong."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the guarantee of --max-error is.")] = 0.95,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="DISTANCE", help="For numbers: further than this from the target is wrong."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Guarantee sets or intervals that miss at most this share of the targets. (default: 0.1, unless "
            "--max-error is given alone)",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Classes: lac, aps or raps. Numbers: split, cqr or jackknife+. (default: the first)"),
    ] = None,
    class_conditional: Annotated[
        bool, typer.Option("--class-conditional", help="Guarantee the sets for each class on its own.")
    ] = False,
    population: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The inputs that the guarantee is for, in your words.")
    ] = None,
    share: Share = None,
    draws: Draws = DRAWS,
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
) -> None:
    """Guarantee an error rate or a coverage, from held-out examples, and write the certificate into the run.

    certificate.json says what is guaranteed, for which inputs, from how many examples and with which digests of data,
    weights and configuration. predict and evaluate use the guarantee with --max-error, the server with "calibrated".
    """
    from bayesify import decisions
    from bayesify.workflows import guarantees, run_data

    method, examples = run_data.open_run(run, data, network=network)
    alpha = 0.1 if alpha is None and (max_error is None or kind is not None or class_conditional) else alpha
    if tolerance is not None and max_error is None:
        raise CommandError("--tolerance belongs to --max-error: give both")
    for notice in examples.notices:
        say(notice)
    part = guarantees.choose_part(method, examples, share, seed)
    drawn_from = examples.what.replace("all of ", "the examples of ", 1)
    population = population or f"inputs drawn in the same way as {drawn_from}"
    settings: dict[str, Any] = {"draws": draws, "seed": seed, "population": population}
    trained = examples.training if kind == "jackknife+" else (part.x, part.y)
    if trained is None:
        raise CommandError("jackknife+ needs the run's own training data, and --data names other data")
    with _naming(part, examples, method):
        if max_error is not None:
            decisions.calibrate(method, (part.x, part.y), max_error, confidence, tolerance=tolerance, **settings)
        if alpha is not None:
            decisions.conformal(method, trained, alpha, kind, class_conditional=class_conditional, **settings)
    guarantees.watch_inputs(method, part, draws, seed)
    _say_trained_on(run, examples, part)
    guarantees.mark_used(method, part)
    content = guarantees.write(method, run)
    say_unprepared(run)
    if as_json:
        emit({"run": str(run)} | content)
        return
    if kind == "jackknife+" and max_error is None:
        print(
            f"{run}: certified from its training data; inputs are compared with {len(part.y):,} examples ({part.what})"
        )
    else:
        print(f"{run}: certified from {len(part.y):,} examples ({part.what})")
    for certificate in guarantees.all_certificates(method):
        print(certificate)
    print(f"written to {run / 'certificate.json'}")


def _say_trained_on(run: Path, examples: Examples, part: Part) -> None:
    """Warn where examples of a file were trained on."""
    from bayesify.workflows import guarantees

    known = guarantees.trained_on(run, examples, part)
    if known:
        say(
            f"{known:,} of {len(part.y):,} examples ({part.what}) are equal to training examples of {run}: if it was "
            "trained on them, the result does not hold for new inputs; give other examples"
        )


@contextmanager
def _naming(part: Part, examples: Examples, method: Method) -> Iterator[None]:
    """Where there are too few examples, say which they were and how to give more."""
    from bayesify.decisions.provenance import TooFewExamplesError
    from bayesify.workflows import guarantees

    try:
        yield
    except TooFewExamplesError as problem:
        unused = len(guarantees.unused_examples(method, examples).y)
        more = f"--share 1 takes all {unused:,}, --data FILE" if unused > len(part.y) else "--data FILE"
        raise CommandError(f"{problem} ({part.what}; {more} gives others)") from None
