"""What the documentation site does to its pages.

Formulas become MathML, which browsers draw without any script. Links to files outside `docs/` lead to the repository.
The reference lists every public name.
"""

from __future__ import annotations

import html
import re
import types
from typing import Any

import latex2mathml.converter

import bayesify

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Links that leave the pages: files of the repository.
_REPOSITORY = "https://github.com/bayesify/bayesify/blob/main/"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside `docs/` at the repository, and fill the reference.

    Args:
        markdown: the page's text.
        page: the page.

    Returns:
        The text with those links changed.

    """
    if page.file.src_uri == "reference.md":
        return markdown + reference()
    depth = page.file.src_uri.count("/")

    def link(match: re.Match[str]) -> str:
        up = match["path"].count("../")
        return f"]({_REPOSITORY}{match['path'].replace('../', '')})" if up > depth else match[0]

    markdown = re.sub(r"\]\((?P<path>(?:\.\./)+[^)#]+)\)", link, markdown)
    data = r"\]\((?P<path>[\w./-]+\.(?:json|jsonl|py))\)"
    here = page.file.src_uri.rpartition("/")[0]
    return re.sub(data, lambda match: f"]({_REPOSITORY}{_normal(f'docs/{here}/' + match['path'])})", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Write every formula as MathML.

    Args:
        content: the page as HTML.

    Returns:
        The page without TeX.

    """
    return _FORMULA.sub(_mathml, content)


def reference() -> str:
    """The body of the reference: a heading for each module, and a block that mkdocstrings fills for each name."""
    values = {name: getattr(bayesify, name) for name in bayesify.__all__}
    parts = {
        name: {part: getattr(value, part) for part in getattr(value, "__all__", ())}
        for name, value in values.items()
        if isinstance(value, types.ModuleType)
    }
    own = {name: value for name, value in values.items() if name not in parts}
    sections = {"bf": own, **{f"bf.{name}": found for name, found in parts.items() if found}}
    return "".join(f"\n## {title}\n" + "".join(map(_block, found.values())) for title, found in sections.items())


def _block(value: Any) -> str:
    documented = isinstance(value, type | types.FunctionType)
    return f"\n::: {value.__module__}.{value.__qualname__}\n" if documented else ""


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match["open"] == "[" else "inline"
    return latex2mathml.converter.convert(html.unescape(match["tex"]).strip(), display=display)


def _normal(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)
