"""Small tables for notebooks: what `_repr_html_` of methods, predictions, evaluations and histories is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], more: str = "") -> str:
    """A table as HTML, with every text escaped.

    Args:
        caption: over the table.
        heads: names of the columns; none for a table without a head.
        rows: one sequence of cells each; numbers are written with four digits.
        more: a line under the table.

    Returns:
        The HTML.

    """
    from markupsafe import Markup, escape

    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in heads)
    lines = [Markup("<tr>{}</tr>").format(head)] if heads else []
    for row in rows:
        cells = Markup("").join(Markup("<td>{}</td>").format(_written(cell)) for cell in row)
        lines.append(Markup("<tr>{}</tr>").format(cells))
    end = Markup("<p>{}</p>").format(more) if more else Markup("")
    body = Markup("").join(lines)
    return str(Markup("<table><caption>{}</caption>{}</table>{}").format(escape(caption), body, end))


def _written(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
