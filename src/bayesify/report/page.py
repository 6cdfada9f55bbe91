"""The page that holds a report: one HTML text with its style inside, no script, nothing from outside.

The templates escape every text that is not `Markup`; the content security policy lets the browser show `data:` images
and the page's style, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.report.figures import Picture

# The room for pictures on a page of 70rem, and where the page is as narrow as the middle size can be.
_WIDE_ROOM, _MIDDLE_ROOM = 1050, 640
# A sheet has 680 pixels, but print stays sharp where a screen would not.
_PRINT_ROOM = 860


def environment(package: str) -> Environment:
    """The templates in the folder `templates` of a package; what they are given is escaped unless it is `Markup`."""
    loader = PackageLoader(package)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


_TEMPLATES = environment("bayesify.report")


def page(
    title: str, subtitle: str, opening: Sequence[Markup], sections: Sequence[tuple[str, Markup]], footer: str
) -> str:
    """The whole document: `opening` comes before the first of `sections` (heading, content)."""
    template = _TEMPLATES.get_template("page.html.j2")
    return template.render(title=title, subtitle=subtitle, opening=opening, sections=sections, footer=footer)


def paragraph(text: str, kind: str = "") -> Markup:
    """A text; a blank line starts another paragraph. `kind` is the class of the paragraphs."""
    return _block("paragraphs", [part.strip() for part in text.split("\n\n") if part.strip()], kind)


def alert_box(alerts: Sequence[tuple[str, str]]) -> Markup:
    """What to know before reading on: (what it is about, text) of each."""
    return _block("alert_box", alerts)


def numbers(listed: Sequence[tuple[str, str, str]]) -> Markup:
    """The few numbers that stand out: (name, value, note)."""
    return _block("numbers", listed)


def table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[tuple[str, bool]]],
    caption: str,
    words: Sequence[int] = (),
) -> Markup:
    """Columns are (title, note); cells are (text, whether it is the column's best). The first column names rows.

    A column of long texts is set as words, flush left; so are those whose places are in `words`.
    """
    long = {place for place in range(1, len(columns)) if rows and all(len(row[place][0]) > 24 for row in rows)}
    return _block("table", columns, rows, caption, long | set(words))


def figure(pictures: Sequence[tuple[Picture, str]], caption: str, notes: Sequence[str] = ()) -> Markup:
    """One picture, or several in even rows, each with its alternative text and, where given, a note below."""
    widest = max(picture.width for picture, _ in pictures)
    wide, middle, paper = (columns(len(pictures), widest, room) for room in (_WIDE_ROOM, _MIDDLE_ROOM, _PRINT_ROOM))
    panels = [(*picture, note) for picture, note in zip(pictures, notes or [""] * len(pictures), strict=True)]
    # Where two columns are all there is room for, the last of three stands below both.
    lone = middle > 1 and len(pictures) % middle == 1
    return _block("figure", panels, f"--wide:{wide};--middle:{middle};--print:{paper}", lone, caption)


def columns(count: int, width: int, room: int) -> int:
    """The number of columns for `count` pictures of a width: few rows, none with a single picture.

    A picture may shrink a little to share a row, and a little more where it would otherwise stand alone.
    """
    for shrunk in (0.88, 0.78):
        most = max(1, min(count, int(room / (shrunk * width))))
        fewest_rows = -(-count // most)
        even = [n for n in range(most, 0, -1) if -(-count // n) == fewest_rows and (count % n != 1 or n == 1)]
        if even:
            return even[-1]
    return max(1, min(count, int(room / (0.88 * width))))


def definitions(listed: Sequence[tuple[str, str, str]]) -> Markup:
    """(name, MathML, words) of each."""
    return _block("definitions", listed)


def _block(macro: str, *values: object) -> Markup:
    block: Markup = getattr(_TEMPLATES.get_template("blocks.html.j2").module, macro)(*values)
    return block
