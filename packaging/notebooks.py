"""The tutorials as notebooks: `python packaging/notebooks.py build/notebooks` makes one of each page in docs/tutorials.

A block of Python becomes a code cell, and what stands between two blocks becomes a text cell. Links to other pages
become links to the site, because a notebook is read without the files beside it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "tutorials"
SITE = "https://bayesify.github.io/bayesify/"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+?)\.md(#[^)\s]*)?\)")


def cells(text: str) -> list[tuple[str, str]]:
    """The parts of a page in their order.

    Args:
        text: the page, in Markdown.

    Returns:
        Pairs of a kind, "markdown" or "code", and the source.

    """
    found = []
    # `split` puts what the group matched, the code, at every second place.
    for place, part in enumerate(_BLOCK.split(text)):
        if part.strip():
            found.append(("code" if place % 2 else "markdown", part.strip("\n")))
    return found


def notebook(page: Path) -> NotebookNode:
    """A page as a notebook without outputs, which is the same at every call.

    Args:
        page: a Markdown file in `docs/tutorials`.

    Returns:
        The notebook, checked against its format.

    """
    parts = cells(page.read_text(encoding="utf-8"))
    if not any(kind == "code" for kind, _ in parts):
        raise ValueError(f"{page.name} has no block that begins with ```python; a tutorial needs at least one")
    made = []
    for number, (kind, source) in enumerate(parts):
        name = f"{page.stem}-{number}"
        if kind == "code":
            made.append(v4.new_code_cell(source, id=name))
        else:
            made.append(v4.new_markdown_cell(_LINK.sub(_on_the_site, source), id=name))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    nbformat.validate(whole)
    return whole


def write(folder: Path) -> list[Path]:
    """Write the notebooks of all tutorials.

    Args:
        folder: where to; it is made if it is not there.

    Returns:
        The files, in the order of their names.

    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for page in sorted(PAGES.glob("*.md")):
        file = folder / f"{page.stem}.ipynb"
        nbformat.write(notebook(page), file)
        written.append(file)
    return written


def _on_the_site(link: re.Match[str]) -> str:
    """A link from one page to another, as an address of the site."""
    page = posixpath.normpath(posixpath.join("tutorials", link[1]))
    folder = page.removesuffix("README").removesuffix("index").rstrip("/")
    return f"]({SITE}{folder}{'/' if folder else ''}{link[2] or ''})"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("say where to write: python packaging/notebooks.py build/notebooks")
    for file in write(Path(sys.argv[1])):
        print(file)
