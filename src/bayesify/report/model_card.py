"""A model card: the `README.md` of a run, with the usual YAML header, every field of it filled from the run itself.

The fields follow M. Mitchell et al. (Model cards for model reporting, 2019) and the header that model hubs read. What a
run does not know is left out, never left empty; the scores are those of its `metrics.json`.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from bayesify import files
from bayesify.errors import RunError
from bayesify.methods import saving
from bayesify.methods.cards import CARDS
from bayesify.report.yaml_text import write_yaml
from bayesify.runs import CARD, CARD_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bayesify.evaluation.results import MethodResult

SCORES = {
    "accuracy": "accuracy",
    "error": "error",
    "nll": "negative log-likelihood (nats)",
    "brier": "Brier score",
    "ece": "expected calibration error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "crps": "continuous ranked probability score",
    "coverage_95": "share of targets inside 95% intervals",
    "aurc": "area under the risk-coverage curve",
    "accuracy_at_90": "accuracy with the least sure tenth withheld",
    "auroc": "AUROC for unknown inputs",
    "aupr": "AUPR for unknown inputs",
    "fpr95": "false alarms when 95% of the unknown inputs are noticed",
}

logger = logging.getLogger("bayesify")


def write_model_card(
    result: MethodResult,
    folder: Path,
    *,
    alerts: Sequence[str] = (),
    licence: str = "other",
    tested_on: str = "",
) -> Path | None:
    """Put the card of a result into its run folder; a `README.md` that is not a card of ours is left as it is."""
    path = folder / CARD
    try:
        if path.exists() and CARD_MARK not in path.read_text(encoding="utf-8", errors="replace")[:2000]:
            logger.warning("%s was not written by bayesify: it is left as it is", path)
            return None
        card = model_card(result, name=folder.name, alerts=alerts, licence=licence, tested_on=tested_on)
        files.write_text(path, card)
    except OSError as problem:
        raise RunError(f"cannot write {path}: {problem.strerror or problem}") from None
    return path


def model_card(
    result: MethodResult, *, name: str, alerts: Sequence[str] = (), licence: str = "other", tested_on: str = ""
) -> str:
    """The card of a result as Markdown, under the name of its run."""
    config = saving.describe(result.method)
    about = config["data"] or {}
    scores = {key: value for key in SCORES if (value := getattr(result.evaluation, key)) is not None}
    parts = [
        f"---\n{write_yaml(_header(result, name, about, scores, licence))}---",
        f"# {_words(name)}",
        _summary(result, config, about),
        "## Before you trust it",
        _alerts(alerts),
        "## How to use it",
        _use(result, name, config, about),
        "## What it is",
        _table(_model(result, config, about)),
        "## Training data",
        _table(_data(about)) if about else "It was trained from Python, on data that the run does not name.",
        "## Training",
        _table(_training(result, config)),
        "## Evaluation",
        _evaluation(result, about, scores, tested_on),
        "## Limits",
        _limits(result, about),
        "## Made with",
        _table([*config["versions"].items(), ("device", config["device"]), ("threads", config["threads"])]),
    ]
    return "\n\n".join(parts) + "\n"


def _header(
    result: MethodResult, name: str, about: Mapping[str, Any], scores: Mapping[str, float], licence: str
) -> dict[str, Any]:
    task = _task(result, about)
    data = about.get("name")
    tested = {"name": data or "test examples", "type": data or "test", "split": "test"}
    listed = [{"type": key, "name": SCORES[key], "value": value} for key, value in scores.items()]
    results = [{"task": {"type": task, "name": task.replace("-", " ")}, "dataset": tested, "metrics": listed}]
    tags = ["bayesian", "uncertainty", "pytorch", result.method.name, result.predictive.kind]
    return {
        "license": licence,
        "library_name": "bayesify",
        "pipeline_tag": task,
        "tags": tags,
        **({"datasets": [data]} if data else {}),
        "metrics": list(scores),
        "model-index": [{"name": name, "results": results}],
    }


def _summary(result: MethodResult, config: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    examples = (about.get("examples") or {}).get("train")
    taught = f", trained on {examples:,} examples of {_words(about['name'])}" if examples else ""
    e = result.evaluation
    if e.accuracy is not None:
        answer = f"It answers {e.accuracy:.1%} of {e.examples:,} test examples right (NLL {e.nll:.3f}, ECE {e.ece:.3f})"
    else:
        answer = (
            f"On {e.examples:,} test examples its RMSE is {e.rmse:.3g} and its NLL {e.nll:.3f}; its 95% intervals hold "
            f"{e.coverage_95:.1%} of the targets"
        )
    noticed = "" if e.auroc is None else f"; unknown inputs are told by their doubt with AUROC {e.auroc:.3f}"
    kind = CARDS[result.method.name].sentence if result.method.name in CARDS else result.method.name
    return f"A {_network(config)} with {kind}{taught}. {answer}{noticed}."


def _alerts(alerts: Sequence[str]) -> str:
    if not alerts:
        return "No alert was raised: it was trained, had converged, and is not overconfident on its test examples."
    return "\n".join(f"- {_words(text)}" for text in alerts)


def _use(result: MethodResult, name: str, config: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    own = "" if config["network"] is not None else ", network=your_network"
    folder = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    lines = ["```python", "import bayesify as bf", "", f'model = bf.load("{folder}"{own})']
    if about.get("preparation"):
        lines.append(f'inputs = bf.prepare("{folder}", raw)  # a file, a DataFrame or an array')
    lines.append(f"answer = model.predict(inputs, draws={result.predictive.draws})")
    classes = result.predictive.kind == "classification"
    lines.append("answer.labels, answer.confidence, answer.epistemic" if classes else "answer.mean, answer.std")
    wanted = config["input_shapes"]
    shape = f" Inputs have the shape {', '.join(str(['n', *part]) for part in wanted)}" if wanted else ""
    prepared = ", once prepared as under *Training data*" if about.get("preparation") and shape else ""
    end = "." if shape else ""
    refuse = " An answer whose confidence is low is better not given: see `accept`." if classes else ""
    return "\n".join([*lines, "```", "", f"{shape.replace(chr(39), '').strip()}{prepared}{end}{refuse}".strip()])


def _model(result: MethodResult, config: Mapping[str, Any], about: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    method = result.method
    prior = config["prior"]
    yield "method", f"{method.name}: {CARDS[method.name].sentence if method.name in CARDS else method.name}"
    yield "settings", _settings(config["settings"]) or "none"
    yield "network", _network(config)
    yield "trained weights", f"{method.network.size:,}, of which {method.network.random_size:,} may be random"
    yield "prior", "none (maximum likelihood)" if prior is None else _settings(prior)
    yield "likelihood", _settings(config["likelihood"])
    yield "draws for an answer", result.predictive.draws
    if about.get("class_names"):
        yield "classes", ", ".join(map(str, about["class_names"]))
    if about.get("pruned"):
        yield "pruned", _settings(about["pruned"])


def _data(about: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    counts = {part: count for part, count in (about.get("examples") or {}).items() if count}
    yield "name", about.get("name") or "not named"
    yield "kind", about.get("kind")
    yield "examples", ", ".join(f"{count:,} {part}" for part, count in counts.items())
    yield "target", about.get("target_name")
    yield "withheld classes, as unknown", ", ".join(map(str, about.get("withheld") or []))
    yield "label noise", about.get("label_noise")
    preparation = about.get("preparation") or {}
    yield "preparation", _preparation(preparation)
    yield "columns", ", ".join(str(column["name"]) for column in preparation.get("columns") or [])
    yield "split", None if about.get("split_seed") is None else f"by seed {about['split_seed']}"
    yield "fingerprint", about.get("fingerprint")
    yield "licence of the data", about.get("licence")


def _training(result: MethodResult, config: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    plan = config["plan"]
    if plan is None:
        yield "training", "not recorded: never fitted, or by a loop of one's own"
        return
    yield from ((name.replace("_", " "), value) for name, value in plan.items() if not name.startswith("validation"))
    records = result.history.records
    if records:
        if "phase" in records[-1]:
            yield "iterations done", records[-1]["step"]
        else:
            yield "epochs done", len(records)
        yield "seconds", f"{sum(record.get('seconds') or 0.0 for record in records):.1f}"
        yield "last training NLL", f"{records[-1]['nll']:.4g}"


def _evaluation(result: MethodResult, about: Mapping[str, Any], scores: Mapping[str, float], tested_on: str) -> str:
    e = result.evaluation
    own = f"the test part of {about['name']}" if about.get("name") else "test examples"
    where = _words(tested_on or own)
    unknown = "" if result.unknown is None else f", against {len(result.unknown):,} unknown inputs"
    table = _table([(SCORES[name], f"{value:.4f}") for name, value in scores.items()], ("score", "value"))
    return f"{e.examples:,} examples, {where}{unknown}; {e.draws} draws.\n\n{table}"


def _limits(result: MethodResult, about: Mapping[str, Any]) -> str:
    kind = "classes" if result.predictive.kind == "classification" else "range of targets"
    lines = [
        f"It knows only the {kind} it was taught, and its scores hold for inputs like those of its test examples.",
        "Doubt is a reason to look again, not a proof: inputs far from training data can still get a confident answer.",
    ]
    if result.unknown is None:
        lines.append("It has not been tried on unknown inputs.")
    elif about.get("withheld"):
        lines.append("Of unknown inputs it has been tried on the withheld classes alone.")
    if result.method.held == 1:
        lines.append("It has no epistemic uncertainty: one set of weights cannot disagree with itself.")
    lines += [f"{note[0].upper()}{note[1:]}." for note in result.method.summary().notes]
    return "\n".join(f"- {_words(line)}" for line in lines)


def _task(result: MethodResult, about: Mapping[str, Any]) -> str:
    pictures = bool((about.get("preparation") or {}).get("image"))
    return f"{'image' if pictures else 'tabular'}-{result.predictive.kind}"


def _network(config: Mapping[str, Any]) -> str:
    spec = config["network"]
    if spec is None:
        return f"network of {len(config['parameters'])} tensors, made by code of its owner"
    rest = {key: value for key, value in spec.items() if key != "type" and value not in (None, 0.0, [])}
    return f"network ({spec['type']}: {_settings(rest)})"


def _preparation(plain: Mapping[str, Any]) -> str:
    image = plain.get("image")
    size = f"images of {image['height']} x {image['width']}, " if image else ""
    return f"{size}normalised by {plain['normalise']}" if plain.get("normalise") else ""


def _settings(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        rest = _settings({key: part for key, part in value.items() if key != "name"})
        return f"{value['name']}: {rest}" if rest else str(value["name"])
    if isinstance(value, dict):
        return ", ".join(f"{key} {_settings(part)}" for key, part in value.items() if part is not None)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(rows: Iterable[tuple[str, Any]], heads: tuple[str, str] = ("field", "value")) -> str:
    """Two columns; what has no value has no row."""
    shown = [(name, _words(str(value))) for name, value in rows if value is not None and str(value).strip()]
    return "\n".join(
        [f"| {heads[0]} | {heads[1]} |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in shown)]
    )


def _words(text: object) -> str:
    """Somebody's words as one line of Markdown that is nothing but words."""
    line = re.sub(r"[\s\x00-\x1f\x7f]+", " ", str(text)).strip()
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", line).replace("&", "&amp;").replace(r"\<", "&lt;")
