"""The blocks of a report: texts, tables, figures and formulas, each as HTML and as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from markupsafe import Markup

from bayesify.evaluation.results import Spread
from bayesify.report import page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayesify.report.figures import Picture
    from bayesify.report.formulas import Definition


@dataclass(frozen=True)
class Column:
    """A column of a report's table.

    Args:
        title: its heading.
        form: how its numbers are written, as Python's format specification: `.3f`, `.1%`.
        unit: written after each number.
        better: `higher` or `lower`, to make the best value bold; empty for neither.
        note: in small type under the heading.

    Raises:
        ValueError: where `better` is something else.

    Examples:
        >>> bf.report.Column("accuracy", ".1%", better="higher").write(0.984)
        '98.4%'

    """

    title: str
    form: str = ""
    unit: str = ""
    better: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.better not in {"", "higher", "lower"}:
            raise ValueError(f"better must be 'higher', 'lower' or empty, got {self.better!r}")

    def write(self, value: Any) -> str:
        """A value as the page shows it.

        Args:
            value: a number, a text, a `Spread` (written as mean ± standard error), or None (written as a dash).

        Returns:
            The text.

        """
        if isinstance(value, Written):
            return value.by.write(value.value)
        if isinstance(value, Spread):
            error = "" if value.standard_error is None else f" ± {self.write(value.standard_error)}"
            return self.write(value.mean) + error
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if self.form and isinstance(value, int | float) and not isinstance(value, bool):
            return f"{value:{self.form}}{self.unit}"
        return f"{value}{self.unit}"


@dataclass(frozen=True)
class Written:
    """A cell that is written as those of another column are."""

    value: Any
    by: Column


class Block(Protocol):
    """A part of a section."""

    def html(self) -> Markup:
        """The block on the page."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The block in the JSON file beside the page."""
        ...


@dataclass
class Text:
    """A paragraph or several."""

    text: str

    def html(self) -> Markup:
        return page.paragraph(self.text)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


@dataclass
class Table:
    """Rows of values under columns."""

    columns: list[Column]
    rows: list[list[Any]]
    caption: str

    def html(self) -> Markup:
        best = [self._best(place) for place in range(len(self.columns))]
        written = [[column.write(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]
        marks = [[self._is_best(place, value, best[place]) for place, value in enumerate(row)] for row in self.rows]
        rows = [list(zip(texts, row, strict=True)) for texts, row in zip(written, marks, strict=True)]
        return page.table([(column.title, column.note) for column in self.columns], rows, self.caption)

    def to_dict(self) -> dict[str, Any]:
        names = [column.title for column in self.columns]
        values = [[value.value if isinstance(value, Written) else value for value in row] for row in self.rows]
        means = [[value.mean if isinstance(value, Spread) else value for value in row] for row in values]
        content = {"type": "table", "caption": self.caption, "columns": names, "rows": means}
        if not any(isinstance(value, Spread) for row in values for value in row):
            return content
        errors = [[value.standard_error if isinstance(value, Spread) else None for value in row] for row in values]
        return content | {"standard_errors": errors}

    def _is_best(self, place: int, value: Any, best: str | None) -> bool:
        """Compared as it is written, without an error: values that look the same are both the best."""
        number = value.mean if isinstance(value, Spread) else value
        return best is not None and self.columns[place].write(number) == best

    def _best(self, place: int) -> str | None:
        column = self.columns[place]
        values = [value.mean if isinstance(value, Spread) else value for value in (row[place] for row in self.rows)]
        numbers = [value for value in values if isinstance(value, int | float)]
        if not column.better or len(numbers) < 2:
            return None
        return column.write(max(numbers) if column.better == "higher" else min(numbers))


@dataclass
class Figures:
    """One picture, or several side by side, with the numbers behind them."""

    figures: list[Figure]
    alt: list[str]
    caption: str
    data: Any
    notes: list[str] = field(default_factory=list)
    drawn: list[Picture] = field(default_factory=list)

    def html(self) -> Markup:
        return page.figure(list(zip(self.drawn, self.alt, strict=True)), self.caption, self.notes)

    def to_dict(self) -> dict[str, Any]:
        content = {"type": "figure", "caption": self.caption, "alt": self.alt, "data": self.data}
        return content | ({"notes": self.notes} if self.notes else {})


@dataclass
class Definitions:
    """Formulas, each with its name and what it means."""

    definitions: list[Definition]

    def html(self) -> Markup:
        return page.definitions([(score.name, score.mathml, score.words) for score in self.definitions])

    def to_dict(self) -> dict[str, Any]:
        listed = [{"name": score.name, "formula": score.text, "words": score.words} for score in self.definitions]
        return {"type": "definitions", "definitions": listed}


@dataclass
class Section:
    """A heading and the blocks below it."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "content": [block.to_dict() for block in self.blocks]}


def plain(value: Any) -> Any:
    """A value for JSON: numbers of any library as Python's, infinity as its sign, NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, Spread):
        return Spread(plain(value.mean), plain(value.standard_error))
    if isinstance(value, Written):
        return Written(plain(value.value), value.by)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else ("∞" if value > 0 else "-∞")
    return value if value is None or isinstance(value, bool | int) else str(value)
