"""A report: a headline, alerts, then tables and figures, as one HTML file with a JSON file beside it.

The page loads nothing from outside. The JSON file, its twin, has the same numbers unrounded, for programs. Both have
aggregates, never the rows of the data.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from bayesify.errors import RunError
from bayesify.files import reason, replacing
from bayesify.report import page
from bayesify.report.blocks import Column, Definitions, Figures, Section, Table, Text, plain
from bayesify.report.figures import DPI, draw, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesify.report.formulas import Definition

LARGEST_REPORT = 2_000_000
_SMALLER_DPI = (DPI, 110, 80)


class Report:
    """A report, built from top to bottom; `write` draws the figures and saves the page.

    Args:
        title: of the page.
        subtitle: what was trained on what, in a line.

    Examples:
        >>> report = bf.report.Report("Digits", "with one of them withheld")
        >>> report.headline("The ensemble notices the unknown digit.")
        >>> report.section("Scores", "The same test set for all.")
        >>> report.table(["method", bf.report.Column("accuracy", ".1%", better="higher")], [["ensemble", 0.984]])
        >>> report.write("digits.html").name
        'digits.html'

    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title, self.subtitle = title, subtitle
        self._headline: list[str] = []
        self._alerts: list[tuple[str, str, str]] = []
        self._numbers: list[tuple[str, str, str]] = []
        self._sections: list[Section] = [Section("")]

    def headline(self, text: str) -> None:
        """Add the result in a sentence, before everything else; further calls add sentences in smaller type.

        Args:
            text: the sentence.

        """
        self._headline.append(text)

    def alert(self, text: str, about: str = "", kind: str = "") -> None:
        """Add a warning, which stands before the results.

        Args:
            text: the warning.
            about: the label of the result.
            kind: what kind of warning it is, for the JSON file.

        """
        self._alerts.append((about, text, kind))

    def number(self, name: str, value: str, note: str = "") -> None:
        """Add one of the large numbers under the headline.

        Args:
            name: what it is.
            value: the number as it is shown.
            note: in small type under it.

        """
        self._numbers.append((name, value, note))

    def section(self, title: str, text: str = "") -> None:
        """Start a section; what is added later belongs to it.

        Args:
            title: its heading.
            text: its first paragraph.

        """
        self._sections.append(Section(title))
        if text:
            self.text(text)

    def text(self, text: str) -> None:
        """Add a paragraph.

        Args:
            text: the paragraph; a blank line starts another one.

        """
        self._sections[-1].blocks.append(Text(text))

    def table(self, columns: Sequence[Column | str], rows: Sequence[Sequence[Any]], caption: str = "") -> None:
        """Add a table; the first value of a row names it, and the best value of a column is bold.

        Args:
            columns: `Column`s, or headings alone.
            rows: plain values, one for each column.
            caption: under the table.

        Raises:
            ValueError: where a row has more or fewer values than there are columns.

        """
        named = [Column(column) if isinstance(column, str) else column for column in columns]
        for row in rows:
            if len(row) != len(named):
                raise ValueError(f"a row must have one value for each of {len(named)} columns, got {len(row)}")
        self._sections[-1].blocks.append(Table(named, [[plain(value) for value in row] for row in rows], caption))

    def figure(
        self,
        pictures: Figure | Axes | Sequence[Figure | Axes],
        caption: str = "",
        alt: str | Sequence[str] = "",
        data: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Add one figure, or several side by side in even rows, which wrap on a narrow screen.

        Figures are drawn when the report is written.

        Args:
            pictures: matplotlib Figures or Axes.
            caption: under them.
            alt: what each shows, in words. By default the caption.
            data: the numbers behind them, for the JSON file.
            notes: what to notice in each.

        Raises:
            ValueError: where `alt` or `notes` do not have one text for each figure.

        """
        several = list(pictures) if isinstance(pictures, Sequence) else [pictures]
        figures = [figure_of(picture) for picture in several]
        words = [alt or caption] * len(figures) if isinstance(alt, str) else list(alt)
        if len(words) != len(figures):
            raise ValueError(f"alt must have one text for each of {len(figures)} pictures, got {len(words)}")
        if notes and len(notes) != len(figures):
            raise ValueError(f"notes must have one text for each of {len(figures)} pictures, got {len(notes)}")
        self._sections[-1].blocks.append(Figures(figures, words, caption, plain(data or {}), list(notes)))

    def definitions(self, listed: Sequence[Definition]) -> None:
        """Add formulas with their names and meanings.

        Args:
            listed: the definitions.

        """
        self._sections[-1].blocks.append(Definitions(list(listed)))

    def html(self, largest: int = LARGEST_REPORT, *, twin: str = "") -> str:
        """The page. Where it is too large, figures become pixels, the largest first, then coarser pixels.

        Args:
            largest: bytes that the page should not exceed.
            twin: the name of the JSON file with its numbers, where there is one.

        Returns:
            The page as HTML.

        """
        blocks = [block for part in self._sections for block in part.blocks if isinstance(block, Figures)]
        for block in blocks:
            block.drawn = [draw(figure) for figure in block.figures]
        text = self._page(twin)
        places = [(block, number) for block in blocks for number in range(len(block.figures))]
        for dpi in _SMALLER_DPI:
            places.sort(key=lambda place: -len(place[0].drawn[place[1]].content))
            for block, number in places:
                if len(text.encode()) <= largest:
                    return text
                pixels = draw(block.figures[number], as_png=True, dpi=dpi)
                if len(pixels.content) < len(block.drawn[number].content):
                    block.drawn[number] = pixels
                    text = self._page(twin)
        size = len(text.encode())
        if size > largest:
            warnings.warn(f"the report has {size:,} bytes, more than {largest:,}: show fewer figures", stacklevel=2)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The content of the JSON file.

        Returns:
            The same words as on the page, and the same numbers unrounded.

        """
        return {
            "format": "bayesify-report",
            "version": 1,
            "title": self.title,
            "subtitle": self.subtitle,
            "headline": self._headline,
            "alerts": [{"about": about, "kind": kind, "text": text} for about, text, kind in self._alerts],
            "numbers": [{"name": name, "value": value, "note": note} for name, value, note in self._numbers],
            "sections": [part.to_dict() for part in self._sections if part.blocks or part.title],
        }

    def write(self, path: str | Path) -> Path:
        """Save the page, and its numbers as JSON beside it; both are complete before either is put in place.

        Args:
            path: of the page, ending in `.html`.

        Returns:
            The path of the page.

        Raises:
            ValueError: where the path does not end in `.html`.
            RunError: where the files cannot be written.

        """
        path = Path(path)
        if path.suffix.lower() not in {".html", ".htm"}:
            raise ValueError(f"a report is an .html file, got {path.name!r}")
        twin = path.with_suffix(".json")
        html = self.html(twin=twin.name)
        numbers = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if path.is_dir():
            raise RunError(f"cannot write {path}: it is a folder")
        try:
            with replacing(path, len(html)) as new_page, replacing(twin, len(numbers)) as new_twin:
                new_page.write_text(html, encoding="utf-8")
                new_twin.write_text(numbers, encoding="utf-8")
        except OSError as problem:
            raise RunError(f"cannot write {path}: {reason(problem)}") from None
        return path

    def _page(self, twin: str) -> str:
        from bayesify import __version__

        opening = [page.paragraph(text, "headline" if place == 0 else "") for place, text in enumerate(self._headline)]
        opening.append(page.alert_box([(about, text) for about, text, _ in self._alerts]))
        opening.append(page.numbers(self._numbers))
        sections = [
            (part.title, Markup("\n").join(block.html() for block in part.blocks))
            for part in self._sections
            if part.blocks or part.title
        ]
        beside = f" Its numbers, unrounded, are in {twin} beside it." if twin else ""
        return page.page(self.title, self.subtitle, opening, sections, f"Made by bayesify {__version__}.{beside}")
