"""A short model card from the configuration of a run alone, where no report was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayesify.evaluation.scores import SCORES
from bayesify.report.model_card import as_words, as_yaml, network_of, sentence_of, settings_of, table_of
from bayesify.runs import CARD_MARK


def unscored_card(config: Mapping[str, Any], scores: Mapping[str, Any], *, name: str, licence: str) -> str:
    """The card as Markdown with a YAML header.

    Args:
        config: the configuration of the run.
        scores: the content of its `metrics.json`; empty where it was never scored.
        name: of the model.
        licence: of the model.

    Returns:
        The text of the card.

    """
    about = config.get("data") or {}
    method = str(config.get("method"))
    numbers = {
        key: scores[key] for key, score in SCORES.items() if score.on_card and isinstance(scores.get(key), float)
    }
    header: dict[str, Any] = {"license": licence, "tags": ["bayesian", "uncertainty", "pytorch", method]}
    header |= {"datasets": [about["name"]]} if about.get("name") else {}
    own = "" if config.get("network") is not None else ", network=your_network"
    use = f'```python\nimport bayesify as bf\n\nmodel = bf.hub.load("{name}"{own})\np = model.predict(inputs)\n```'
    model = [
        ("method", f"{method}: {sentence_of(method)}"),
        ("network", network_of(config)),
        ("prior", config.get("prior") or "none (maximum likelihood)"),
        ("likelihood", settings_of(config.get("likelihood") or {})),
        ("classes", ", ".join(map(str, about.get("class_names") or []))),
        ("training data", about.get("name")),
        ("base", None if not config.get("base") else "left out: load it with the base that it was trained on"),
    ]
    scored = "It was not scored: `bayesify report RUN` scores a run and writes a full card."
    if numbers:
        rows = [(SCORES[key].title, f"{value:.4f}") for key, value in numbers.items()]
        scored = f"On {as_words(scores.get('data') or 'test examples')}:\n\n{table_of(rows, ('score', 'value'))}"
    limits = [f"- {as_words(text)}" for text in (config.get("warnings") or {}).values()]
    limits.append("- Inputs far from the training data can still get a confident prediction.")
    parts = [
        f"---\n{CARD_MARK}\n{as_yaml(header)}---",
        f"# {as_words(name)}",
        "## How to use it",
        use,
        "## What it is",
        table_of(model),
        "## Evaluation",
        scored,
        "## Before you trust it",
        "\n".join(limits),
        "## Made with",
        table_of(list((config.get("versions") or {}).items())),
    ]
    return "\n\n".join(parts) + "\n"
