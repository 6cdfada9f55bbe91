"""A model card: the `README.md` of a run, with the usual YAML header, filled from the run itself.

The fields follow M. Mitchell et al. (Model cards for model reporting, 2019) and the header that model hubs read. What a
run does not know is left out; the scores are those of its `metrics.json`.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from bayesify import files
from bayesify.errors import RunError
from bayesify.evaluation.scores import SCORES
from bayesify.methods import saving
from bayesify.methods.after_fit import low_elbo
from bayesify.methods.cards import CARDS
from bayesify.runs import CARD, CARD_MARK
from bayesify.training.loop import Plan
from bayesify.training.warnings import FEWEST_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bayesify.evaluation.results import MethodResult

logger = logging.getLogger("bayesify")
# Texts, which stay as they are, and numbers that YAML 1.1 would read as text.
_JSON_NOT_YAML = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d+(?=e)|-?Infinity|NaN')


def write_model_card(
    result: MethodResult,
    folder: Path,
    *,
    alerts: Sequence[str] = (),
    licence: str = "other",
    tested_on: str = "",
) -> Path | None:
    """Write the card of a result into its run folder.

    A `README.md` that bayesify did not write is left as it is, with a warning.

    Args:
        result: a fitted method with its scores.
        folder: the run folder; its name is the model's name.
        alerts: warnings about the result, one sentence each.
        licence: of the model: an identifier such as `apache-2.0`.
        tested_on: what the test set is, where it is not the test part of the run's own data.

    Returns:
        The path of the card, or None where somebody else's `README.md` is in its place.

    Raises:
        RunError: where the file cannot be written.

    Examples:
        >>> run = bnn.save("run")
        >>> p = bnn.predict(x, draws=5)
        >>> result = bf.report.MethodResult("variational", "Mine", bnn, bf.evaluate(bnn, (x, y), draws=5), p, y)
        >>> bf.report.write_model_card(result, run).name
        'README.md'

    """
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
    """The card of a result as Markdown with a YAML header.

    The fields follow M. Mitchell et al. ("Model cards for model reporting", 2019) and the header that model hubs read.

    Args:
        result: a fitted method with its scores.
        name: the model's name.
        alerts: warnings about the result, one sentence each.
        licence: of the model: an identifier such as `apache-2.0`.
        tested_on: what the test set is, where it is not the test part of the run's own data.

    Returns:
        The text of the card. A field that the run does not know is left out.

    Examples:
        >>> p = bnn.predict(x, draws=5)
        >>> result = bf.report.MethodResult("variational", "Mine", bnn, bf.evaluate(bnn, (x, y), draws=5), p, y)
        >>> card = bf.report.model_card(result, name="clouds", licence="mit")
        >>> card.splitlines()[:3]
        ['---', 'library_name: bayesify', 'license: "mit"']

    """
    config = saving.describe(result.method)
    about = config["data"] or {}
    scores = {
        name: value
        for name, score in SCORES.items()
        if score.on_card and (value := getattr(result.evaluation, name)) is not None
    }
    parts = [
        f"---\n{CARD_MARK}\n{as_yaml(_header(result, name, about, scores, licence))}---",
        f"# {as_words(name)}",
        _summary(result, config, about),
        "## Before you trust it",
        _alerts(result, alerts),
        "## How to use it",
        _use(result, name, config, about),
        "## What it is",
        table_of(_model(result, config, about)),
        "## Training data",
        table_of(_data(about)) if about else "It was trained from Python, on data that the run does not name.",
        "## Training",
        table_of(_training(result, config)),
        "## Evaluation",
        _evaluation(result, about, scores, tested_on),
        "## Limits",
        _limits(result, about),
        "## Made with",
        table_of([*config["versions"].items(), ("device", config["device"]), ("threads", config["threads"])]),
    ]
    return "\n\n".join(parts) + "\n"


def _header(
    result: MethodResult, name: str, about: Mapping[str, Any], scores: Mapping[str, float], licence: str
) -> dict[str, Any]:
    task = _task(result, about)
    data = about.get("name")
    tested = {"name": data or "test examples", "type": data or "test", "split": "test"}
    listed = [{"type": key, "name": SCORES[key].title, "value": value} for key, value in scores.items()]
    results = [{"task": {"type": task, "name": task.replace("-", " ")}, "dataset": tested, "metrics": listed}]
    tags = ["bayesian", "uncertainty", "pytorch", result.method.name, result.predictive.kind]
    return {
        "license": licence,
        "pipeline_tag": task,
        "tags": tags,
        **({"datasets": [data]} if data else {}),
        "metrics": list(scores),
        "model-index": [{"name": name, "results": results}],
    }


def as_yaml(header: Mapping[str, Any]) -> str:
    """A line of JSON for each key, which is YAML but for infinities and exponents of whole numbers."""

    def translate(match: re.Match[str]) -> str:
        if match[0].startswith('"'):
            return match[0]
        return {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}.get(match[0], f"{match[0]}.0")

    lines = [
        f"{name}: {_JSON_NOT_YAML.sub(translate, json.dumps(header[name], ensure_ascii=False))}" for name in header
    ]
    return "".join(f"{''.join(map(_printable, line))}\n" for line in lines)


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _summary(result: MethodResult, config: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    examples = (about.get("examples") or {}).get("train")
    trained_on = f", trained on {examples:,} examples of {as_words(about['name'])}" if examples else ""
    e = result.evaluation
    if e.accuracy is not None:
        quality = f"It gets {e.accuracy:.1%} of {e.examples:,} test examples right (NLL {e.nll:.3f}, ECE {e.ece:.3f})"
    else:
        quality = (
            f"On {e.examples:,} test examples its RMSE is {e.rmse:.3g} and its NLL {e.nll:.3f}; its 95% intervals hold "
            f"{e.coverage_95:.1%} of the targets"
        )
    noticed = "" if e.auroc is None else f"; its uncertainty separates unknown inputs with AUROC {e.auroc:.3f}"
    return f"A {network_of(config)} with {sentence_of(result.method.name)}{trained_on}. {quality}{noticed}."


def _alerts(result: MethodResult, alerts: Sequence[str]) -> str:
    note = low_elbo(result.method)
    lines = [f"- {as_words(text)}" for text in alerts]
    lines += [] if note is None else [f"- {as_words(f'{note[0].upper()}{note[1:]}')}."]
    return "\n".join(lines if alerts else [_no_alert(result), "", *lines]).strip()


def _no_alert(result: MethodResult) -> str:
    """What was checked without an alert, and no more."""
    method, passed = result.method, []
    if method.checked is not None and method.checked.constant_nll is not None:
        where = f"{method.checked.examples:,} of the {method.checked.where}"
        passed.append(f"its predictions are better than a constant one on {where}")
    plan = method.plan
    if not hasattr(method, "diagnose") and len(result.history) >= FEWEST_EPOCHS:
        falls = isinstance(plan, Plan) and plan.schedule in {"cosine", "linear"}
        rate = ", where the learning rate is close to 0" if falls else ""
        passed.append(f"its loss no longer fell clearly in the last epochs{rate}")
    passed.append("it is not overconfident on its test examples")
    return f"No alert was raised: {'; '.join(passed)}."


def _use(result: MethodResult, name: str, config: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    network = "" if config["network"] is not None else ", network=your_network"
    folder = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    lines = ["```python", "import bayesify as bf", "", f'model = bf.load("{folder}"{network})']
    if about.get("preparation"):
        lines.append(f'inputs = bf.prepare("{folder}", raw)  # a file, a DataFrame or an array')
    lines.append(f"p = model.predict(inputs, draws={result.predictive.draws})")
    classes = result.predictive.kind == "classification"
    lines.append("p.labels, p.confidence, p.epistemic" if classes else "p.mean, p.std")
    shapes = config["input_shapes"]
    shape = f" Inputs have the shape {', '.join(str(['n', *shape]) for shape in shapes)}" if shapes else ""
    prepared = ", once prepared as under *Training data*" if about.get("preparation") and shape else ""
    end = "." if shape else ""
    refuse = " Do not use predictions with low confidence: see `accept`." if classes else ""
    return "\n".join([*lines, "```", "", f"{shape.replace(chr(39), '').strip()}{prepared}{end}{refuse}".strip()])


def _model(result: MethodResult, config: Mapping[str, Any], about: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    method = result.method
    prior = config["prior"]
    yield "method", f"{method.name}: {sentence_of(method.name)}"
    yield "settings", settings_of(config["settings"]) or "none"
    yield "network", network_of(config)
    yield "trained weights", f"{method.network.size:,}, of which {method.network.random_size:,} may be random"
    yield "prior", "none (maximum likelihood)" if prior is None else settings_of(prior)
    yield "likelihood", settings_of(config["likelihood"])
    yield "posterior draws for a prediction", result.predictive.draws
    if about.get("class_names"):
        yield "classes", ", ".join(map(str, about["class_names"]))
    if about.get("pruned"):
        yield "pruned", settings_of(about["pruned"])


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
    yield "what was decided about it", "; ".join(map(str, about.get("notices") or []))
    yield "split", None if about.get("split_seed") is None else f"by seed {about['split_seed']}"
    yield "fingerprint", about.get("fingerprint")
    yield "licence of the data", about.get("licence")


def _training(result: MethodResult, config: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    plan = config["plan"]
    if plan is None:
        yield "training", "not recorded: never fitted, or trained by another loop"
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
    elbo = result.method.final_elbo
    yield "ELBO", None if elbo is None else str(elbo)


def _evaluation(result: MethodResult, about: Mapping[str, Any], scores: Mapping[str, float], tested_on: str) -> str:
    e = result.evaluation
    test_part = f"the test part of {about['name']}" if about.get("name") else "test examples"
    where = as_words(tested_on or test_part)
    unknown = "" if result.unknown is None else f", against {len(result.unknown):,} unknown inputs"
    table = table_of([(SCORES[name].title, f"{value:.4f}") for name, value in scores.items()], ("score", "value"))
    parts = [f"{e.examples:,} examples, {where}{unknown}; {e.draws} draws.", table]
    if e.recall is not None and e.confusion is not None:
        counts = map(sum, e.confusion)
        rows = [
            (as_words(name), f"{'none' if share is None else f'{share:.1%}'} of {count:,}")
            for (name, share), count in zip(e.recall.items(), counts, strict=True)
        ]
        parts.append(table_of(rows, ("class", "recall")))
    if result.baselines:
        rows = [
            (model.title, ", ".join(f"{SCORES[name].title} {value:.4g}" for name, value in model.scores.items()))
            for model in result.baselines
        ]
        parts.append(table_of(rows, ("simple model on the same examples", "scores")))
    return "\n\n".join(parts)


def _limits(result: MethodResult, about: Mapping[str, Any]) -> str:
    kind = "classes" if result.predictive.kind == "classification" else "range of targets"
    lines = [
        f"It knows only the {kind} of its training data, and its scores hold for inputs like its test examples.",
        "Inputs far from the training data can still get a confident prediction.",
    ]
    if result.unknown is None:
        lines.append("It has not been tested on unknown inputs.")
    elif about.get("withheld"):
        lines.append("Its only unknown test inputs were the withheld classes.")
    if result.method.held == 1:
        lines.append("It has no epistemic uncertainty: it has only one set of weights.")
    told = low_elbo(result.method)
    lines += [f"{note[0].upper()}{note[1:]}." for note in result.method.summary().notes if note != told]
    return "\n".join(f"- {as_words(line)}" for line in lines)


def sentence_of(method: str) -> str:
    """What a method is; one that has no card is called by its name."""
    return CARDS[method].sentence if method in CARDS else method


def _task(result: MethodResult, about: Mapping[str, Any]) -> str:
    images = bool((about.get("preparation") or {}).get("image"))
    return f"{'image' if images else 'tabular'}-{result.predictive.kind}"


def network_of(config: Mapping[str, Any]) -> str:
    spec = config["network"]
    if spec is None:
        return f"network of {len(config['parameters'])} tensors, from the user's own code"
    rest = {key: value for key, value in spec.items() if key != "type" and value not in (None, 0.0, [])}
    return f"network ({spec['type']}: {settings_of(rest)})"


def _preparation(plain: Mapping[str, Any]) -> str:
    image = plain.get("image")
    size = f"images of {image['height']} x {image['width']}, " if image else ""
    return f"{size}normalised by {plain['normalise']}" if plain.get("normalise") else ""


def settings_of(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        rest = settings_of({key: part for key, part in value.items() if key != "name"})
        return f"{value['name']}: {rest}" if rest else str(value["name"])
    if isinstance(value, dict):
        return ", ".join(f"{key} {settings_of(part)}" for key, part in value.items() if part is not None)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def table_of(rows: Iterable[tuple[str, Any]], heads: tuple[str, str] = ("field", "value")) -> str:
    """Two columns; rows without a value are left out."""
    shown = [(name, as_words(str(value))) for name, value in rows if value is not None and str(value).strip()]
    return "\n".join(
        [f"| {heads[0]} | {heads[1]} |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in shown)]
    )


def as_words(text: object) -> str:
    """A user's text as one line of Markdown, with every special character escaped."""
    line = re.sub(r"[\s\x00-\x1f\x7f]+", " ", str(text)).strip()
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", line).replace("&", "&amp;").replace(r"\<", "&lt;")
