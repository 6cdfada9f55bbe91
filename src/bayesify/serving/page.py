"""The description of the HTTP interface as one page: no script, nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from jinja2 import ChainableUndefined

from bayesify.report.page import environment

# Most fields of an OpenAPI document are optional.
_TEMPLATES = environment("bayesify.serving").overlay(undefined=ChainableUndefined)
_STYLE = _TEMPLATES.get_template("docs.css").render()
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            tag = (operation.get("tags") or ["Other"])[0]
            by_tag.setdefault(tag, []).append((path, verb, operation))
    schemas = document.get("components", {}).get("schemas", {})
    return _TEMPLATES.get_template("docs.html.j2").render(
        info=document["info"], groups=by_tag.items(), schemas=schemas, written=_written
    )


def _written(value: Any, margin: str = "") -> str:
    """JSON for reading: an array of numbers or words is one line."""
    inner = margin + " "
    if isinstance(value, dict) and value:
        parts = [f"{json.dumps(name)}: {_written(part, inner)}" for name, part in value.items()]
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        parts = [_written(part, inner) for part in value]
    else:
        return json.dumps(value)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{last}"
