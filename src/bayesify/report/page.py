"""The page that holds a report: one HTML text with its style inside, no script, nothing from outside.

Everything that comes from a user passes through `escape`; the content security policy lets the browser show
`data:` pictures and this page's own style, and nothing else.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.report.figures import Picture

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, subtitle: str, opening: Sequence[str], sections: Sequence[tuple[str, str]], footer: str) -> str:
    """The whole document: `opening` are ready parts before the first of `sections` (heading, ready content)."""
    headings = [(f"part-{number}", heading) for number, (heading, _) in enumerate(sections, 1)]
    entries = "".join(f'<li><a href="#{place}">{escape(heading)}</a></li>' for place, heading in headings if heading)
    contents = f'<nav aria-label="Contents"><ul>{entries}</ul></nav>' if entries.count("<li>") > 2 else ""
    body = "\n".join(
        f'<section id="{place}">{f"<h2>{escape(heading)}</h2>" if heading else ""}\n{content}\n</section>'
        for (place, heading), (_, content) in zip(headings, sections, strict=True)
    )
    second = f'<p class="subtitle">{escape(subtitle)}</p>' if subtitle else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>{second}</header>
{"".join(opening)}
{contents}
{body}
</main>
<footer><p>{escape(footer)}</p></footer>
</body>
</html>
"""


def paragraph(text: str, kind: str = "") -> str:
    """Some words; a blank line starts another paragraph."""
    mark = f' class="{escape(kind)}"' if kind else ""
    return "".join(f"<p{mark}>{escape(part.strip())}</p>\n" for part in text.split("\n\n") if part.strip())


def alert_box(alerts: Sequence[tuple[str, str]]) -> str:
    """What to know before reading on: pairs of whom it is about and what to know."""
    if not alerts:
        return ""
    items = "".join(
        f"<li>{f'<strong>{escape(who)}:</strong> ' if who else ''}{escape(what)}</li>" for who, what in alerts
    )
    return f'<aside class="alerts" aria-label="Alerts"><h2>Before you trust this</h2><ul>{items}</ul></aside>\n'


def numbers(listed: Sequence[tuple[str, str, str]]) -> str:
    """The few numbers that stand out: (name, value, note)."""
    if not listed:
        return ""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd>{f'<dd>{escape(note)}</dd>' if note else ''}</div>"
        for name, value, note in listed
    )
    return f'<dl class="numbers">{items}</dl>\n'


def table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[tuple[str, bool]]],
    caption: str,
    words: Sequence[int] = (),
) -> str:
    """Columns are (title, note); cells are (text, whether it is the column's best). The first column names rows.

    A column that holds no number is set as words; so are those whose places are in `words`.
    """
    worded = {place for place in range(1, len(columns)) if rows and all(_is_words(row[place][0]) for row in rows)}
    worded |= set(words)
    lines = []
    for row in rows:
        cells = [f'<th scope="row">{escape(row[0][0])}</th>'] if row else []
        cells += [_cell(text, best=best, words=place in worded) for place, (text, best) in enumerate(row[1:], 1)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col"{_WORDS if place in worded else ""}>{escape(title)}'
        f"{f'<small>{escape(note)}</small>' if note else ''}</th>"
        for place, (title, note) in enumerate(columns)
    )
    name = escape(caption or "Table")
    hint = f'<p class="hint">{len(columns)} columns: scroll the table sideways →</p>' if len(columns) > 4 else ""
    return (
        f'<figure class="table">{hint}<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"{_caption(caption)}</figure>"
    )


def figure(pictures: Sequence[tuple[Picture, str]], caption: str, notes: Sequence[str] = ()) -> str:
    """One picture, or several in even rows; each with the words that stand for it and, where given, a note below."""
    images = [
        f'<img{"" if picture.kind == "svg" else _PIXELS} src="{escape(picture.address)}" alt="{escape(words)}" '
        f'width="{picture.width}" height="{picture.height}" style="max-width:{round(1.25 * picture.width)}px">'
        for picture, words in pictures
    ]
    below = [f"<p>{escape(note)}</p>" if note else "" for note in notes] or [""] * len(images)
    panels = "".join(f'<div class="panel">{image}{note}</div>' for image, note in zip(images, below, strict=True))
    widest = max(picture.width for picture, _ in pictures)
    wide, middle, paper = (columns(len(pictures), widest, room) for room in (_WIDE_ROOM, _MIDDLE_ROOM, _PRINT_ROOM))
    style = f"--wide:{wide};--middle:{middle};--print:{paper}"
    # Where two columns are all there is room for, the last of three stands below both.
    lone = " lone" if middle > 1 and len(pictures) % middle == 1 else ""
    return f'<figure><div class="card{lone}" style="{style}">{panels}</div>{_caption(caption)}</figure>'


def columns(count: int, width: int, room: int) -> int:
    """In how many columns `count` pictures of a width stand in so much room: few rows, none with a single picture.

    A picture may shrink a little to share a row, and a little more where one would otherwise stand alone.
    """
    for shrunk in (0.88, 0.78):
        most = max(1, min(count, int(room / (shrunk * width))))
        fewest_rows = -(-count // most)
        even = [n for n in range(most, 0, -1) if -(-count // n) == fewest_rows and (count % n != 1 or n == 1)]
        if even:
            return even[-1]
    return max(1, min(count, int(room / (0.88 * width))))


def definitions(listed: Sequence[tuple[str, str, str]]) -> str:
    """(name, ready MathML, words) of each."""
    items = "".join(
        f'<div><dt>{escape(name)}</dt><dd><div class="formula" tabindex="0" role="region" aria-label="Formula of '
        f'{escape(name)}">{mathml}</div></dd><dd>{escape(words)}</dd></div>'
        for name, mathml, words in listed
    )
    return f'<dl class="definitions">{items}</dl>'


def _caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


def _is_words(text: str) -> bool:
    """Words, unlike numbers, are read from the left."""
    return len(text) > 24


def _cell(text: str, *, best: bool, words: bool) -> str:
    number, plus_minus, error = text.partition(" ± ")
    shown = escape(number)
    # An error stands below its mean, so that a column stays narrow.
    below = f"<small>± {escape(error)}</small>" if plus_minus else ""
    return f"<td{_WORDS if words else ''}>{f'<b>{shown}</b>' if best else shown}{below}</td>"


_PIXELS, _WORDS = ' class="pixels"', ' class="words"'
# The room for pictures on a page of 70rem, and where the page is as narrow as the middle size can be.
_WIDE_ROOM, _MIDDLE_ROOM = 1050, 640
# A sheet has 680 pixels, but print stays sharp where a screen would not.
_PRINT_ROOM = 860
STYLE = """
:root { --ink:#1f2328; --soft:#59636e; --paper:#fff; --line:#d8dce1; --shade:#f5f7f9; --link:#00609a;
  --alert:#7a4a00; --alert-paper:#fff6e5; --alert-line:#e0a030; --edge:rgba(31,35,40,.22); color-scheme:light dark; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8ebef; --soft:#a5afba; --paper:#14181d; --line:#363d46;
  --shade:#1d232a; --link:#6db8ea; --alert:#ffd899; --alert-paper:#2b2213; --alert-line:#a8761c;
  --edge:rgba(255,255,255,.28); } }
* { box-sizing:border-box; }
html { -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
main, footer { max-width:70rem; margin:0 auto; padding:0 1.25rem; }
h1 { font-size:1.75rem; line-height:1.2; margin:2.2rem 0 .3rem; overflow-wrap:anywhere; }
h2 { font-size:1.25rem; line-height:1.3; margin:2.6rem 0 .5rem; overflow-wrap:anywhere; scroll-margin-top:1rem; }
p { max-width:46rem; margin:.6rem 0; overflow-wrap:anywhere; }
.subtitle { color:var(--soft); margin-top:0; }
.headline { font-size:1.22rem; line-height:1.45; margin:1.1rem 0 .6rem; }
.alerts { border:1px solid var(--alert-line); border-left-width:5px; background:var(--alert-paper); color:var(--alert);
  border-radius:6px; padding:.7rem 1rem; margin:1.2rem 0; max-width:46rem; overflow-wrap:anywhere; }
.alerts h2 { font-size:1rem; margin:0; } .alerts ul { margin:.3rem 0 0; padding-left:1.1rem; }
dl, dd { margin:0; }
.numbers { display:grid; grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr)); gap:.7rem; margin:1.2rem 0 0; }
.numbers div { background:var(--shade); border:1px solid var(--line); border-radius:8px; padding:.6rem .85rem; }
.numbers dt { color:var(--soft); font-size:.85rem; line-height:1.3; }
.numbers dd { font-size:1.45rem; font-weight:600; line-height:1.3; font-variant-numeric:tabular-nums; }
.numbers dd + dd { font-size:.8rem; font-weight:400; color:var(--soft); overflow-wrap:anywhere; }
nav ul { list-style:none; padding:0; margin:1.4rem 0 0; display:flex; flex-wrap:wrap;
  gap:.3rem 1.1rem; font-size:.92rem; }
nav a { display:inline-block; padding:.2rem 0; }
a { color:var(--link); }
figure { margin:1.2rem 0 1.8rem; }
figcaption { color:var(--soft); font-size:.93rem; margin-top:.5rem; max-width:46rem; overflow-wrap:anywhere; }
.card { border:1px solid var(--line); border-radius:8px; padding:.8rem; display:grid; gap:1rem .8rem;
  grid-template-columns:minmax(0,1fr); align-items:start; justify-items:center; }
.panel { width:100%; } .card img { width:100%; height:auto; display:block; margin:0 auto; }
.panel p { color:var(--soft); font-size:.9rem; line-height:1.45; margin:.4rem .2rem 0; }
.pixels { background:#fff; border-radius:4px; }
@media (min-width:43rem) { .card { grid-template-columns:repeat(var(--middle),minmax(0,1fr)); } }
@media (min-width:68rem) { .card { grid-template-columns:repeat(var(--wide),minmax(0,1fr)); } }
@media (min-width:43rem) and (max-width:67.99rem) { .lone > :last-child { grid-column:1/-1; } }
.hint { display:none; color:var(--soft); font-size:.85rem; margin:0 0 .35rem; }
.scroll { overflow-x:auto; border:1px solid var(--line); border-radius:8px;
  background:linear-gradient(to left,var(--paper) 40%,transparent) right/2.6rem 100% no-repeat local,
  linear-gradient(to left,var(--edge),transparent) right/.9rem 100% no-repeat scroll; }
table { border-collapse:separate; border-spacing:0; width:100%; font-variant-numeric:tabular-nums; font-size:.95rem; }
th, td { padding:.5rem .8rem; text-align:right; border-bottom:1px solid var(--line); vertical-align:baseline; }
thead th { vertical-align:bottom; } td { white-space:nowrap; }
.words { text-align:left; } td.words { white-space:normal; min-width:11rem; }
td small { display:block; color:var(--soft); font-size:.82rem; line-height:1.2; }
tbody tr:last-child > * { border-bottom:0; }
th[scope=row], th:first-child { text-align:left; font-weight:600; min-width:10rem; max-width:18rem;
  overflow-wrap:anywhere; position:sticky; left:0; background:var(--paper); border-right:1px solid var(--line); }
thead th, thead th:first-child { background:var(--shade); font-weight:600; line-height:1.25; }
thead small { display:block; font-weight:400; color:var(--soft); font-size:.78rem; }
.definitions > div { padding:.7rem 0; border-bottom:1px solid var(--line); max-width:46rem; }
.definitions dt { font-weight:600; } .formula { overflow-x:auto; padding:.35rem 0; font-size:1.08rem; }
.definitions dd:last-child { color:var(--soft); font-size:.95rem; }
math { font-family:"STIX Two Math","Cambria Math","Latin Modern Math",math,serif; }
footer { color:var(--soft); font-size:.85rem; padding-top:1.5rem; padding-bottom:2rem; }
:focus-visible { outline:3px solid var(--link); outline-offset:2px; }
@media (max-width:43rem) { body { font-size:15px; } main, footer { padding:0 .9rem; } h1 { font-size:1.45rem; }
  th, td { padding:.45rem .6rem; } .card { padding:.5rem; } .hint { display:block; }
  th[scope=row], th:first-child { min-width:8rem; max-width:9rem; }
  td.words { min-width:0; } .numbers { grid-template-columns:repeat(2,minmax(0,1fr)); } }
@page { margin:14mm; }
@media print { :root { --ink:#000; --soft:#333; --paper:#fff; --line:#bbb; --shade:#f2f2f2; --link:#000;
  --alert:#000; --alert-paper:#fff; --alert-line:#888; color-scheme:light; }
  body { font-size:10pt; } nav, .hint { display:none; } main, footer { max-width:none; padding:0; }
  figure, .alerts, .numbers, .definitions > div, tr { break-inside:avoid; } h2 { break-after:avoid; }
  .card { grid-template-columns:repeat(var(--print),minmax(0,1fr)); } .panel p { font-size:8pt; }
  .scroll { overflow:visible; background:none; } table { font-size:8.5pt; } th, td { padding:.25rem .4rem; }
  th[scope=row], th:first-child { position:static; min-width:0; } thead small { font-size:7pt; }
  .numbers { grid-template-columns:repeat(auto-fit,minmax(7rem,1fr)); } }
"""
