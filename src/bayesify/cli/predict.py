"""`bayesify predict`: a prediction for each input with its uncertainty, or "I do not know"."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.options import By, Draws, Json, MaxError, OwnNetwork, Run, Seed, say_unprepared
from bayesify.cli.output import CommandError, emit, say
from bayesify.workflows.recipe import DRAWS

if TYPE_CHECKING:
    from bayesify.decisions import Conformal
    from bayesify.methods import Method
    from bayesify.predictive import Predictive

UNKNOWN, UNLIKE = "I do not know", "unlike the training data"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples:\n\n"
        "bayesify predict runs/mnist seven.png --at-least 0.95\n\n"
        "bayesify predict runs/mnist seven.png --max-error 0.01\n\n"
        "bayesify predict runs/photos *.jpg --csv > answers.csv\n\n"
        "bayesify predict runs/mine new.csv --json\n\n"
        'echo \'{"age": 41, "height": 172}\' | bayesify predict runs/mine -'
    )(predict)


def predict(
    run: Run,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="PNG or JPEG images (or a folder of them), .npy or .npz files, or tables (.csv, .tsv, also .gz, "
            ".parquet, .arrow, sqlite:///FILE?query=SELECT ...); - reads CSV rows or JSON lines from standard input.",
        ),
    ],
    at_least: Annotated[
        float | None,
        typer.Option(metavar="CONFIDENCE", help="Below this confidence print 'I do not know' (classification)."),
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option(metavar="WIDTH", help="Above this width of the 95% interval print 'I do not know' (regression)."),
    ] = None,
    max_error: MaxError = None,
    draws: Draws = DRAWS,
    by: By = "draws",
    seed: Seed = 0,
    network: OwnNetwork = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
) -> None:
    """Predict inputs with their uncertainty; size, colours, polarity and scaling are adjusted as in training.

    Arrays and rows hold raw values on the scale of the training data. A run that was fitted in Python has no
    preparation: numbers in .npy, .npz and .csv files are taken as they are.

    A row of a table with a category, a spelling or a gap that training never saw is answered "I do not know", with the
    reason. The other rows are predicted. If the run has a check for unknown inputs (bayesify unknown RUN), inputs that
    are unlike the training data are answered "I do not know" too.

    Aleatoric uncertainty is noise in the data. Epistemic uncertainty is what the network has not learnt. For classes
    both are in percent of the largest possible, with nats in brackets (JSON and CSV: nats); for numbers, variances.
    """
    from bayesify import runs
    from bayesify.decisions import conformal_of, saved_check
    from bayesify.workflows import load, run_data
    from bayesify.workflows.inputs import read_inputs
    from bayesify.workflows.python_runs import taken_by

    if as_json and as_csv:
        raise CommandError("--json and --csv exclude each other: choose one")
    config = runs.read_config(run)
    preparation = run_data.preparation_of(config, run)
    read = read_inputs(inputs, preparation, sys.stdin)
    method = load.load_run(run, network)
    rule = _rule(method, at_least, at_most, max_error)
    check, sets = saved_check(method), conformal_of(method)
    records: list[dict[str, Any]] = []
    used = 0
    prepared = read.prepared(taken_by(method, preparation))
    # Only the draws of one part of the inputs are kept: all of them may not fit in memory.
    for predictive in method.predict_in_parts(prepared, draws=draws, seed=seed, by=by):
        names = read.names[len(records) : len(records) + len(predictive)]
        found = _records(predictive, names, rule(predictive))
        used = predictive.draws
        if sets is not None and _is_way_of(sets, used, seed, by):
            found = _with_sets(found, predictive, sets)
        records += found
    if sets is not None and not _is_way_of(sets, used, seed, by):
        made = sets.provenance
        needed = f"--draws {made.draws} --seed {made.seed} --by {made.by}"
        say(f"no guaranteed sets or intervals here: they were made with {needed}")
    if check is not None:
        known = check.accept(prepared).tolist()
        records = [_with_check(record, known=same) for record, same in zip(records, known, strict=True)]
    if preparation.columns:
        records = [_with_reason(record, reason) for record, reason in zip(records, read.reasons, strict=True)]
    say_unprepared(run)
    if as_json:
        about = {"run": str(run), "draws": used, "at_least": at_least, "at_most": at_most}
        about |= {} if max_error is None else {"max_error": max_error}
        emit((records[0] if len(records) == 1 else {}) | about | {"predictions": records})
    elif as_csv:
        flat = [{name: value for name, value in record.items() if name != "probs"} for record in records]
        flat = [record | ({"set": " ".join(record["set"])} if "set" in record else {}) for record in flat]
        writer = csv.DictWriter(sys.stdout, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    else:
        for record in records:
            print(_sentence(record, sets))


def _rule(
    method: Method, at_least: float | None, at_most: float | None, max_error: float | None
) -> Callable[[Predictive], list[Any]]:
    """What decides which predictions are accepted."""
    if max_error is None:
        return lambda predictive: _accepted(predictive, at_least, at_most)
    from bayesify.decisions import refusal_of

    if at_least is not None or at_most is not None:
        raise CommandError("--max-error sets the threshold itself: leave out --at-least and --at-most")
    refusal = refusal_of(method, max_error)

    def accepted(predictive: Predictive) -> list[Any]:
        listed: list[Any] = refusal.accept(predictive).tolist()
        return listed

    return accepted


def _is_way_of(promise: Conformal, draws: int, seed: int, by: str) -> bool:
    """Whether predictions are made in the way that conformal sets or intervals were guaranteed for."""
    origin = promise.provenance
    return (origin.draws, origin.seed, origin.by) == (draws, seed, by)


def _with_sets(records: list[dict[str, Any]], predictive: Predictive, promise: Conformal) -> list[dict[str, Any]]:
    """The records with their conformal sets or intervals."""
    if predictive.kind == "regression":
        lower, upper = (end.tolist() for end in promise.interval(predictive))
        ends = [{"conformal_lower": low, "conformal_upper": high} for low, high in zip(lower, upper, strict=True)]
        return [record | end for record, end in zip(records, ends, strict=True)]
    classes = predictive.class_names or tuple(map(str, range(predictive.probs.shape[-1])))
    return [
        record | {"set": [name for name, inside in zip(classes, row, strict=True) if inside]}
        for record, row in zip(records, promise.sets(predictive).tolist(), strict=True)
    ]


def _accepted(predictive: Predictive, at_least: float | None, at_most: float | None) -> list[Any]:
    """For each input whether it is certain enough; a list where the target has several values."""
    regression = predictive.kind == "regression"
    if at_least is not None and regression:
        raise CommandError("--at-least is for classes, but this run predicts numbers: use --at-most WIDTH")
    if at_most is not None and not regression:
        raise CommandError("--at-most is for numbers, but this run predicts classes: use --at-least CONFIDENCE")
    if at_least is not None and not 0 <= at_least <= 1:
        raise CommandError(f"--at-least must be a confidence from 0 to 1, got {at_least:g}")
    if at_least is None and at_most is None:
        predictions = predictive.mean if regression else predictive.labels
        accepted = predictions.new_ones(predictions.shape).bool()
    else:
        accepted = predictive.accept(at_least=at_least, at_most=at_most)
    listed: list[Any] = accepted.tolist()
    return listed


def _records(predictive: Predictive, names: list[str], accepted: list[Any]) -> list[dict[str, Any]]:
    table = {name: values.tolist() for name, values in predictive.numpy().items()}
    if predictive.kind == "regression":
        columns = {"value": "mean", "std": "std", "lower": "lower", "upper": "upper"}
        columns |= {"aleatoric": "aleatoric", "epistemic": "epistemic"}
        return [
            {"input": name, "answer": table["mean"][i] if _all(ok) else UNKNOWN}
            | {key: table[column][i] for key, column in columns.items()}
            | {"accepted": ok}
            for i, (name, ok) in enumerate(zip(names, accepted, strict=True))
        ]
    scores = ("confidence", "entropy", "aleatoric", "epistemic")
    if predictive.labels.ndim > 1:
        # One label for each pixel or question, as in the server: the name of each class would be too much.
        return [
            {"input": name, "answer": table["labels"][i] if _all(ok) else UNKNOWN, "label": table["labels"][i]}
            | {key: table[key][i] for key in scores}
            | {"accepted": ok, "probs": table["probs"][i]}
            for i, (name, ok) in enumerate(zip(names, accepted, strict=True))
        ]
    classes = predictive.class_names or tuple(map(str, range(predictive.probs.shape[-1])))
    return [
        {
            "input": name,
            "answer": classes[table["labels"][i]] if ok else UNKNOWN,
            "label": classes[table["labels"][i]],
            **{key: table[key][i] for key in scores},
            "accepted": ok,
            "probs": dict(zip(classes, table["probs"][i], strict=True)),
        }
        for i, (name, ok) in enumerate(zip(names, accepted, strict=True))
    ]


def _with_reason(record: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """A row of a table with the reason why it is not answered; without a prediction where training never saw it."""
    if reason is None:
        return record | {"reason": record.get("reason") or _unsure(record)}
    nothing = {name: None for name in record if name not in {"input", "answer", "accepted"}}
    return record | nothing | {"answer": UNKNOWN, "accepted": False, "reason": reason}


def _with_check(record: dict[str, Any], *, known: bool) -> dict[str, Any]:
    """A record of a run with a check for unknown inputs: refused, with the reason, where that is what it is."""
    if known:
        return record | {"known": True, "reason": _unsure(record)}
    return record | {"answer": UNKNOWN, "accepted": _nowhere(record["accepted"]), "known": False, "reason": UNLIKE}


def _unsure(record: dict[str, Any]) -> str | None:
    return None if _all(record["accepted"]) else "not certain enough"


def _nowhere(accepted: Any) -> Any:
    return [_nowhere(one) for one in accepted] if isinstance(accepted, list) else False


def _sentence(record: dict[str, Any], promise: Conformal | None = None) -> str:
    if record["aleatoric"] is None:
        return f"{record['input']}: {UNKNOWN}, {record['reason']}"
    sure = _all(record["accepted"])
    unlike = f", {UNLIKE}" if record.get("known") is False else ""
    uncertainty = ", ".join(f"{kind} {_amount(record, kind)}" for kind in ("aleatoric", "epistemic"))
    if promise is not None:
        uncertainty += _guaranteed(record, promise)
    if "label" in record:
        label = _written(record["label"], "")
        answer = label if sure else f"{UNKNOWN}{unlike} (best guess: {label})"
        return f"{record['input']}: {answer}, confidence {_confidence(record['confidence'])}, {uncertainty}"
    value, lower, upper = (_written(record[name], ".6g") for name in ("value", "lower", "upper"))
    answer = value if sure else f"{UNKNOWN}{unlike} (best guess: {value})"
    return f"{record['input']}: {answer}, 95% between {lower} and {upper}, {uncertainty}"


def _guaranteed(record: dict[str, Any], promise: Conformal) -> str:
    """The conformal set or interval of a record, with its guaranteed coverage."""
    if "set" in record:
        return f", {100 * promise.coverage:.4g}% guaranteed set {{{', '.join(record['set'])}}}"
    if "conformal_lower" in record:
        ends = f"{record['conformal_lower']:.6g} and {record['conformal_upper']:.6g}"
        return f", {100 * promise.coverage:.4g}% guaranteed between {ends}"
    return ""


def _amount(record: dict[str, Any], kind: str) -> str:
    """An uncertainty: of classes in percent of the largest possible, with the nats behind it; of numbers a variance."""
    value = record[kind]
    if "label" not in record or isinstance(value, list):
        return _written(value, ".3g")
    return f"{value / math.log(len(record['probs'])):.1%} ({value:.3f} nats)"


def _confidence(value: Any) -> str:
    """How sure, in percent; 100% only where it is exactly that."""
    if isinstance(value, list):
        return _written(value, ".1%")
    return ">99.9%" if 0.9995 <= value < 1 else f"{value:.1%}"


def _all(value: Any) -> bool:
    return all(map(_all, value)) if isinstance(value, list) else bool(value)


def _written(value: Any, form: str) -> str:
    """A number or a name; several of them in brackets."""
    return f"[{', '.join(_written(item, form) for item in value)}]" if isinstance(value, list) else f"{value:{form}}"
