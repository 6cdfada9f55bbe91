"""What the documentation site does to its pages.

Formulas become MathML, which browsers draw without any script. Links to files outside `docs/` lead to the repository.
The reference lists every public name, with a page for each module.
"""

from __future__ import annotations

import html
import re
import types
from typing import Any

import latex2mathml.converter
from mkdocs.structure.files import File

import bayesify
import bayesify.decisions

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
# Links that leave the pages: files of the repository.
_REPOSITORY = "https://github.com/bayesify/bayesify/blob/main/"


# What `import bayesify` alone does not bring, and the guides use.
_FURTHER = {"decisions": bayesify.decisions}


def on_config(config: Any, **_: Any) -> Any:
    """Put a page for each module of the reference into the menu.

    Args:
        config: the site's configuration.

    Returns:
        The configuration.

    """
    pages = [{title: _page(title)} for title in reference()]
    config.nav = [{"Reference": pages} if entry == {"Reference": "reference.md"} else entry for entry in config.nav]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages of the reference beside its first one, which is in `docs/`.

    Args:
        files: all files of the site.
        config: the site's configuration.

    Returns:
        The files.

    """
    for title, body in list(reference().items())[1:]:
        files.append(File.generated(config, _page(title), content=f"# {title}\n\n{_purpose(title)}\n{body}"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files outside `docs/` at the repository, and fill the reference.

    Args:
        markdown: the page's text.
        page: the page.

    Returns:
        The text with those links changed.

    """
    if page.file.src_uri == "reference.md":
        return markdown + next(iter(reference().values()))
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


def reference() -> dict[str, str]:
    """The reference by module, `bf` first: a block for each name, which mkdocstrings fills."""
    values = {name: getattr(bayesify, name) for name in bayesify.__all__}
    parts = {
        name: {part: getattr(value, part) for part in getattr(value, "__all__", ())}
        for name, value in values.items()
        if isinstance(value, types.ModuleType)
    }
    own = {name: value for name, value in values.items() if name not in parts}
    known = {id(value) for value in own.values()}
    for name, module in _FURTHER.items():
        public = {part: getattr(module, part) for part in module.__all__}
        parts[name] = {part: value for part, value in public.items() if id(value) not in known}
    sections = {"bf": own, **{_title(name): found for name, found in parts.items()}}
    blocks = {title: "".join(map(_block, found.values())) for title, found in sections.items()}
    return {title: body for title, body in blocks.items() if body}


def _title(name: str) -> str:
    return f"bayesify.{name}" if name in _FURTHER else f"bf.{name}"


def _purpose(title: str) -> str:
    """The first paragraph of a module's docstring."""
    return (getattr(bayesify, title.rpartition(".")[2]).__doc__ or "").partition("\n\n")[0]


def _page(title: str) -> str:
    return "reference.md" if title == "bf" else f"reference/{title.rpartition('.')[2]}.md"


def _block(value: Any) -> str:
    if not isinstance(value, type | types.FunctionType):
        return ""
    options = "    options:\n      inherited_members: true\n" if value is bayesify.Method else ""
    return f"\n::: {value.__module__}.{value.__qualname__}\n{options}"


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
