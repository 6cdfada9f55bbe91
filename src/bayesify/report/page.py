"""The page that holds a report: one HTML text with its style inside, no script, nothing from outside.

Everything that comes from a user passes through `escape`; the content security policy lets the browser show
`data:` pictures and this page's own style, and nothing else.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.report.pictures import Picture

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


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[tuple[str, bool]]], caption: str) -> str:
    """Columns are (title, note); cells are (text, whether it is the column's best). The first column names rows."""
    head = "".join(
        f'<th scope="col">{escape(title)}{f"<small>{escape(note)}</small>" if note else ""}</th>'
        for title, note in columns
    )
    lines = []
    for row in rows:
        cells = [f'<th scope="row">{escape(row[0][0])}</th>'] if row else []
        cells += [f"<td>{f'<b>{escape(text)}</b>' if best else escape(text)}</td>" for text, best in row[1:]]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    name = escape(caption or "Table")
    return (
        f'<figure class="table"><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"{_caption(caption)}</figure>"
    )


def figure(pictures: Sequence[tuple[Picture, str]], caption: str) -> str:
    """One picture, or several that wrap on a narrow screen; each with the words that stand for it."""
    images = "".join(
        f'<img src="{escape(picture.address)}" alt="{escape(words)}" width="{picture.width}" height="{picture.height}" '
        f'style="max-width:{round(1.4 * picture.width)}px">'
        for picture, words in pictures
    )
    # As many equal columns as fit: pictures may shrink a little to share a row, and grow to fill it.
    least = round(0.88 * max(picture.width for picture, _ in pictures))
    return f'<figure><div class="card" style="--least:{least}px">{images}</div>{_caption(caption)}</figure>'


def _caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


STYLE = """
:root { --ink:#1f2328; --soft:#59636e; --paper:#fff; --line:#d8dce1; --shade:#f5f7f9; --link:#00609a;
  --alert:#7a4a00; --alert-paper:#fff6e5; --alert-line:#e0a030; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8ebef; --soft:#a5afba; --paper:#14181d; --line:#363d46;
  --shade:#1d232a; --link:#6db8ea; --alert:#ffd899; --alert-paper:#2b2213; --alert-line:#a8761c; } }
* { box-sizing:border-box; }
html { -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
main, footer { max-width:70rem; margin:0 auto; padding:0 1.25rem; }
h1 { font-size:1.75rem; line-height:1.2; margin:2.2rem 0 .3rem; overflow-wrap:anywhere; }
h2 { font-size:1.25rem; line-height:1.3; margin:2.6rem 0 .5rem; overflow-wrap:anywhere; }
p { max-width:46rem; margin:.6rem 0; overflow-wrap:anywhere; }
.subtitle { color:var(--soft); margin-top:0; }
.headline { font-size:1.22rem; line-height:1.45; margin:1.1rem 0 .6rem; }
.alerts { border:1px solid var(--alert-line); border-left-width:5px; background:var(--alert-paper); color:var(--alert);
  border-radius:6px; padding:.7rem 1rem; margin:1.2rem 0; max-width:46rem; overflow-wrap:anywhere; }
.alerts h2 { font-size:1rem; margin:0; } .alerts ul { margin:.3rem 0 0; padding-left:1.1rem; }
nav ul { list-style:none; padding:0; margin:1.4rem 0 0; display:flex; flex-wrap:wrap;
  gap:.3rem 1.1rem; font-size:.92rem; }
a { color:var(--link); }
figure { margin:1.2rem 0 1.8rem; }
figcaption { color:var(--soft); font-size:.93rem; margin-top:.5rem; max-width:46rem; overflow-wrap:anywhere; }
.card { background:#fff; border:1px solid var(--line); border-radius:8px; padding:.8rem; display:grid;
  grid-template-columns:repeat(auto-fit,minmax(min(100%,var(--least)),1fr)); gap:.8rem; align-items:start; }
.card img { width:100%; height:auto; display:block; margin:0 auto; }
.scroll { overflow-x:auto; border:1px solid var(--line); border-radius:8px; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.95rem; }
th, td { padding:.5rem .8rem; text-align:right; border-bottom:1px solid var(--line); vertical-align:bottom; }
tbody tr:last-child > * { border-bottom:0; }
th[scope=row], th:first-child { text-align:left; font-weight:600; min-width:8rem; max-width:18rem;
  overflow-wrap:anywhere; }
thead th { background:var(--shade); font-weight:600; line-height:1.25; }
thead small { display:block; font-weight:400; color:var(--soft); font-size:.78rem; }
footer { color:var(--soft); font-size:.85rem; padding-top:1.5rem; padding-bottom:2rem; }
:focus-visible { outline:3px solid var(--link); outline-offset:2px; }
@media (max-width:40rem) { body { font-size:15px; } main, footer { padding:0 .9rem; } h1 { font-size:1.45rem; }
  th, td { padding:.45rem .6rem; } .card { padding:.5rem; } }
@media print { :root { --ink:#000; --soft:#333; --paper:#fff; --line:#bbb; --shade:#f2f2f2; --link:#000;
  --alert:#000; --alert-paper:#fff; --alert-line:#888; }
  body { font-size:10.5pt; } nav { display:none; } main, footer { max-width:none; padding:0; }
  figure, .alerts, tr { break-inside:avoid; } h2 { break-after:avoid; } .scroll { overflow:visible; } }
"""
