"""The description of the HTTP interface as one page: no script, nothing from elsewhere, everything escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; } section { border-top: 1px solid var(--line); padding: .5rem 0 1rem; }
h3 { font-family: ui-monospace, monospace; font-size: 1rem; overflow-wrap: anywhere; }
h3 b { display: inline-block; min-width: 3.5rem; }
pre { background: var(--soft); padding: .75rem; overflow: auto; max-height: 18rem; border-radius: .25rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            tag = (operation.get("tags") or ["Other"])[0]
            by_tag.setdefault(tag, []).append(_operation(path, verb, operation))
    groups = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in by_tag.items())
    shapes = document.get("components", {}).get("schemas", {})
    schemas = "".join(f"<section><h3>{escape(name)}</h3>{_pre(shape)}</section>" for name, shape in shapes.items())
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1><p>{escape(info.get('description', ''))}</p>"
        f'<p>For programs: <a href="openapi.json">openapi.json</a>.</p>{groups}<h2>Schemas</h2>{schemas}</main></body>'
        "</html>"
    )


def _operation(path: str, verb: str, operation: dict[str, Any]) -> str:
    parts = [f"<section><h3><b>{escape(verb.upper())}</b> {escape(path)}</h3><p>{escape(operation['summary'])}</p>"]
    parameters = operation.get("parameters") or []
    if parameters:
        rows = "".join(_parameter(parameter) for parameter in parameters)
        parts.append(f"<table><tr><th>parameter</th><th>in</th><th>what</th></tr>{rows}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: <code>{escape(kind)}</code> {_shape_name(content)}</p>")
        for name, example in (content.get("examples") or {}).items():
            parts.append(f"<p>Example, {escape(name)}:</p>{_pre(example['value'])}")
    rows = "".join(
        f"<tr><td>{escape(str(status))}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in operation.get("responses", {}).items()
    )
    parts.append(f"<table><tr><th>status</th><th>when</th></tr>{rows}</table></section>")
    return "".join(parts)


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    words = [schema.get("description", ""), *(f"one of {', '.join(schema['enum'])}" for _ in "1" if "enum" in schema)]
    what = "; ".join(word for word in words if word) or str(schema.get("type", ""))
    cells = (parameter["name"], parameter["in"], what)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _shape_name(content: dict[str, Any]) -> str:
    return escape(content.get("schema", {}).get("$ref", "").rpartition("/")[2])


def _pre(value: Any) -> str:
    return f'<pre tabindex="0">{escape(_written(value))}</pre>'


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
