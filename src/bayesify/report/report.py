"""A report: an answer, what to beware of, then tables and figures, as one HTML file and a JSON twin.

The page holds everything it shows and asks nothing from outside; the twin beside it has the same numbers,
unrounded, for machines. Both hold aggregates, never the rows they came from.
"""

from __future__ import annotations

import errno
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesify.errors import RunError
from bayesify.report import page
from bayesify.report.pictures import DPI, Picture, draw, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_REPORT = 2_000_000
_SMALLER_DPI = (DPI, 110, 80)


@dataclass(frozen=True)
class Column:
    """A table's column: how its numbers are written (`.3f`, `.1%`), a unit, which way is better, and a note."""

    title: str
    form: str = ""
    unit: str = ""
    better: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.better not in {"", "higher", "lower"}:
            raise ValueError(f"better must be 'higher', 'lower' or empty, got {self.better!r}")

    def write(self, value: Any) -> str:
        """A value as the page shows it; a dash where there is none."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if self.form and isinstance(value, int | float) and not isinstance(value, bool):
            return f"{value:{self.form}}{self.unit}"
        return f"{value}{self.unit}"


class Report:
    """Builds a report from top to bottom; `write` draws the figures and saves it.

    >>> report = Report("Digits", "with one of them withheld")
    >>> report.headline("The ensemble notices the unknown digit.")
    >>> report.section("Scores", "The same test set for all.")
    >>> report.table([Column("method"), Column("accuracy", ".1%", better="higher")], [["ensemble", 0.984]])
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title, self.subtitle = title, subtitle
        self._headline: list[str] = []
        self._alerts: list[tuple[str, str]] = []
        self._sections: list[_Section] = [_Section("")]

    def headline(self, text: str) -> None:
        """The answer, before everything else; further calls add to it in smaller type."""
        self._headline.append(text)

    def alert(self, text: str, about: str = "") -> None:
        """Something to know before trusting the rest, and whom it is about."""
        self._alerts.append((about, text))

    def section(self, title: str, text: str = "") -> None:
        """What follows belongs under this heading."""
        self._sections.append(_Section(title))
        if text:
            self.text(text)

    def text(self, text: str) -> None:
        """A paragraph; a blank line starts another one."""
        self._sections[-1].blocks.append(_Text(text))

    def table(self, columns: Sequence[Column | str], rows: Sequence[Sequence[Any]], caption: str = "") -> None:
        """Rows of plain values, one for each column; the first names the row, the best of a column is bold."""
        named = [Column(column) if isinstance(column, str) else column for column in columns]
        for row in rows:
            if len(row) != len(named):
                raise ValueError(f"a row must have one value for each of {len(named)} columns, got {len(row)}")
        self._sections[-1].blocks.append(_Table(named, [[_plain(value) for value in row] for row in rows], caption))

    def figure(
        self,
        pictures: Figure | Axes | Sequence[Figure | Axes],
        caption: str = "",
        alt: str | Sequence[str] = "",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """One picture or several side by side, which wrap on a narrow screen.

        `alt` says in words what each shows (the caption, unless given); `data` are the numbers behind it, for
        the twin. Figures are drawn when the report is written.
        """
        several = list(pictures) if isinstance(pictures, Sequence) else [pictures]
        figures = [figure_of(picture) for picture in several]
        words = [alt or caption] * len(figures) if isinstance(alt, str) else list(alt)
        if len(words) != len(figures):
            raise ValueError(f"alt must have one text for each of {len(figures)} pictures, got {len(words)}")
        self._sections[-1].blocks.append(_Figures(figures, words, caption, _plain(data or {})))

    def html(self, largest: int = LARGEST_REPORT) -> str:
        """The page. Beyond `largest` bytes figures become pixels, the biggest first, then coarser pixels."""
        blocks = [block for part in self._sections for block in part.blocks if isinstance(block, _Figures)]
        for block in blocks:
            block.drawn = [draw(figure) for figure in block.figures]
        text = self._page()
        places = [(block, number) for block in blocks for number in range(len(block.figures))]
        for dpi in _SMALLER_DPI:
            places.sort(key=lambda place: -len(place[0].drawn[place[1]].content))
            for block, number in places:
                if len(text.encode()) <= largest:
                    return text
                pixels = draw(block.figures[number], as_png=True, dpi=dpi)
                if len(pixels.content) < len(block.drawn[number].content):
                    block.drawn[number] = pixels
                    text = self._page()
        size = len(text.encode())
        if size > largest:
            warnings.warn(f"the report has {size:,} bytes, more than {largest:,}: show fewer figures", stacklevel=2)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The twin: the same words, and the same numbers unrounded."""
        return {
            "format": "bayesify-report",
            "version": 1,
            "title": self.title,
            "subtitle": self.subtitle,
            "headline": self._headline,
            "alerts": [{"about": about, "text": text} for about, text in self._alerts],
            "sections": [part.to_dict() for part in self._sections if part.blocks or part.title],
        }

    def write(self, path: str | Path) -> Path:
        """Save the page, and its twin (`.json`) beside it; both are whole before either is put in place."""
        path = Path(path)
        if path.suffix.lower() not in {".html", ".htm"}:
            raise ValueError(f"a report is an .html file, got {path.name!r}")
        texts = {
            path.with_suffix(".json"): json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
            path: self.html(),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_together(texts)
        except OSError as problem:
            raise RunError(f"cannot write {path}: {problem.strerror or problem}") from None
        return path

    def _page(self) -> str:
        from bayesify import __version__

        opening = [page.paragraph(text, "headline" if place == 0 else "") for place, text in enumerate(self._headline)]
        opening.append(page.alert_box(self._alerts))
        sections = [
            (part.title, "\n".join(block.html() for block in part.blocks))
            for part in self._sections
            if part.blocks or part.title
        ]
        return page.page(self.title, self.subtitle, opening, sections, f"Made by bayesify {__version__}.")


@dataclass
class _Text:
    text: str

    def html(self) -> str:
        return page.paragraph(self.text)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


@dataclass
class _Table:
    columns: list[Column]
    rows: list[list[Any]]
    caption: str

    def html(self) -> str:
        best = [self._best(place) for place in range(len(self.columns))]
        written = [[column.write(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]
        rows = [[(text, text == top) for text, top in zip(row, best, strict=True)] for row in written]
        return page.table([(column.title, column.note) for column in self.columns], rows, self.caption)

    def to_dict(self) -> dict[str, Any]:
        names = [column.title for column in self.columns]
        return {"type": "table", "caption": self.caption, "columns": names, "rows": self.rows}

    def _best(self, place: int) -> str | None:
        """The best value as it is written, so that values which look the same are both marked."""
        column = self.columns[place]
        values = [row[place] for row in self.rows if isinstance(row[place], int | float)]
        if not column.better or len(values) < 2:
            return None
        return column.write(max(values) if column.better == "higher" else min(values))


@dataclass
class _Figures:
    figures: list[Figure]
    alt: list[str]
    caption: str
    data: Any
    drawn: list[Picture] = field(default_factory=list)

    def html(self) -> str:
        return page.figure(list(zip(self.drawn, self.alt, strict=True)), self.caption)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "figure", "caption": self.caption, "alt": self.alt, "data": self.data}


@dataclass
class _Section:
    title: str
    blocks: list[_Text | _Table | _Figures] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "content": [block.to_dict() for block in self.blocks]}


def _plain(value: Any) -> Any:
    """A value that JSON can hold: numbers of any library as Python's, infinity as its sign, NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else ("∞" if value > 0 else "-∞")
    return value if value is None or isinstance(value, bool | int) else str(value)


def _write_together(texts: Mapping[Path, str]) -> None:
    for path in texts:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in texts}
    try:
        for path, text in texts.items():
            temporary[path].write_text(text, encoding="utf-8")
        for path, waiting in temporary.items():
            waiting.replace(path)
    finally:
        for waiting in temporary.values():
            waiting.unlink(missing_ok=True)
