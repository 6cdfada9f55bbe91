"""The pages of a result: Markdown for the docs and one HTML file for a browser, from the same plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bayesify.files import write_text
from bayesify.report import page as html
from bayesify.report.figures import Picture
from bayesify_studies.experiments.framework import care, code_state, corrections
from bayesify_studies.experiments.framework.unfinished import unfinished
from bayesify_studies.experiments.framework.verdicts import verdict

_WORDS_OF_A_NUMBER = 4  # 0.1 ± 0.2 points
COLUMNS = ("", "published", "ours", "what the difference means")
COLUMNS_ALONE = ("", "result", "what it means")
# Below every page that has standard errors, unless it has others.
READING = (
    '± is the standard error over seeds. "Better", "worse" and "significant" mean that the 95% t interval of the '
    "paired differences over seeds excludes zero. Unless a correction is named, each difference is tested on its own. "
    "Then about one in twenty comparisons of equally good methods is significant by chance. Variational networks "
    "that were trained side by side saw the examples in the same order, whatever their seed. Their standard errors "
    "do not include the effect of this order."
)


def write_pages(out: Path, results: Mapping[str, Any]) -> None:
    """`page.md` and `report.html` in the experiment's folder."""
    write_text(out / "page.md", markdown(results, "figures/"))
    write_text(out / "report.html", webpage(results, out / "figures"))


def markdown(results: Mapping[str, Any], figures: str) -> str:
    """The page for the docs; `figures` comes before every file's name."""
    short, answer = _once(verdict(results)), _once(results["answer"])
    parts = [f"# {results['title']}", results["question"], f"**{short}**"]
    parts += [missing] if (missing := unfinished(results)) else []
    first, *others = [
        f"![{_once(picture['caption'])}]({figures}{picture['file']})\n\n{picture['caption']}"
        for picture in results["pictures"]
    ] or [""]
    parts += [first] if first else []
    parts.append(_table(*_lines(results)))
    parts += ["## In more detail", answer] if answer != short else []
    for table in results["tables"]:
        parts += [f"## {table['title']}", _table(table["headings"], table["rows"])]
        parts += [table["note"]] if table["note"] else []
    parts += others
    corrected = corrections.told(results)
    parts += [f"## {corrections.TITLE}", corrected] if corrected else []
    tried = care.told(results)
    parts += [f"## {care.TITLE}", tried] if tried else []
    if results["shortfalls"]:
        parts += ["## What is missing or weaker than hoped", "\n".join(f"- {one}" for one in results["shortfalls"])]
    if "±" in "".join(parts):
        parts += ["## How to read it", _reading(results)]
    parts += ["## How it was run", f"    {results['command']}", " · ".join(_how(results)) + "."]
    parts += [*_added(results), _code(results)]
    return "\n\n".join(parts) + "\n"


def _reading(results: Mapping[str, Any]) -> str:
    return results.get("reading") or READING


def webpage(results: Mapping[str, Any], figures: Path) -> str:
    """The page for a browser: one file that asks nothing from outside."""
    # A table sets what follows " ± " small and below; in a sentence it belongs where it is.
    headings, lines = _lines(results)
    rows = [[cell.replace(" ± ", "\u00a0±\u00a0") for cell in line] for line in lines]
    title = "Published and ours" if "published" in headings else "Results"
    sections = [(title, _html_table(headings, rows, words=range(1, len(headings))))]
    for table in results["tables"]:
        sections.append((table["title"], _html_table(table["headings"], table["rows"]) + html.paragraph(table["note"])))
    pictures = Markup().join(
        html.figure([(_picture(figures / one["file"]), one["caption"])], one["caption"], [])
        for one in results["pictures"]
    )
    if pictures:
        sections.append(("Figures", pictures))
    corrected = corrections.told(results)
    if corrected:
        sections.append((corrections.TITLE, html.paragraph(corrected)))
    tried = care.told(results)
    if tried:
        sections.append((care.TITLE, html.paragraph(tried)))
    if results["shortfalls"]:
        items = Markup().join(Markup("<li>{}</li>").format(one) for one in results["shortfalls"])
        sections.append(("What is missing or weaker than hoped", Markup("<ul>{}</ul>").format(items)))
    if any("±" in text for _, text in sections):
        sections.append(("How to read it", html.paragraph(_reading(results))))
    command = Markup("<pre>{}</pre>").format(results["command"])
    run = Markup().join(map(html.paragraph, ["; ".join(_how(results)), *_added(results), _code(results)]))
    sections.append(("How it was run", command + run))
    short = verdict(results)
    opening = [html.paragraph(short, "headline")]
    opening += [html.paragraph(missing)] if (missing := unfinished(results)) else []
    opening += [html.paragraph(results["answer"])] if results["answer"] != short else []
    footer = f"bayesify, experiment {results['name']}, preset {results['preset']}"
    return html.page(results["title"], results["question"], opening, sections, footer)


def _lines(results: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """The headings and rows of the first table; where nothing is published, without a column for it."""
    keys = ("what", "published", "ours", "meaning")
    if any(line["published"] != "none" for line in results["lines"]):
        return COLUMNS, [[line[key] for key in keys] for line in results["lines"]]
    return COLUMNS_ALONE, [[line[key] for key in keys if key != "published"] for line in results["lines"]]


def _how(results: Mapping[str, Any]) -> list[str]:
    told = [
        f"preset {results['preset']}",
        f"machine{'s' if len(results['machines']) > 1 else ''}: {'; '.join(results['machines'])}",
        f"{results['seconds']:,.0f} s",
    ]
    return told + ([f"computed at {_commits(results['commit'])}{_when(results)}"] if results.get("commit") else [])


def _commits(said: str) -> str:
    found = said.split(" and ")
    return f"commit{'s' if len(found) > 1 else ''} {', '.join(found)}"


def _when(computed: Mapping[str, Any]) -> str:
    """The days of the computation. Early results recorded none: for them, the day on which they were published."""
    dates = computed.get("dates") or []
    if dates:
        return f" on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"
    return f" on or before {computed['published']}" if computed.get("published") else ""


def _added(results: Mapping[str, Any]) -> list[str]:
    """What was computed later than the rest, and how."""
    return [
        f"Added later: {', '.join(table['title'] for table in one['tables']) or 'pictures'} · "
        f"machine{'s' if len(one['machines']) > 1 else ''}: {'; '.join(one['machines'])} · {one['seconds']:,.0f} s"
        + (f" · computed at {_commits(one['commit'])}{_when(one)}." if one["commit"] else f" · computed{_when(one)}.")
        for one in results.get("added", [])
        if one["machines"]
    ]


def _code(results: Mapping[str, Any]) -> str:
    """Whether the code that computed a result is still the same, and whether that code was committed."""
    commits = " ".join(one.get("commit") or "" for one in (results, *results.get("added", [])))
    edited = " Some parts were computed from a copy with uncommitted changes." if "dirty" in commits else ""
    return _state(results) + edited


def _state(results: Mapping[str, Any]) -> str:
    # An addition has a record of its own: the same module may have computed the rest in another state.
    records = [
        {module: state for module, state in (one.get("code") or {}).items() if state is not None}
        for one in (results, *results.get("added", []))
    ]
    if not any(records):
        return "There is no record of the state of the code that computed this."
    edited = sorted({module for record in records for module in code_state.changed(record)})
    if not edited:
        return "The experiment's code has not changed since the result was computed."
    return f"The experiment's code has changed since the result was computed. Changed modules: {', '.join(edited)}."


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of numbers are flush right; the first names the row."""
    columns = list(zip(*rows, strict=True))[1:]
    sides = "".join(" ---: |" if all(_is_number(cell) for cell in column) else " --- |" for column in columns)
    lines = ["| " + " | ".join(headings) + " |", f"| --- |{sides}"]
    return "\n".join([*lines, *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)])


def _is_number(cell: str) -> bool:
    return len(cell.split()) <= _WORDS_OF_A_NUMBER and (not cell or cell[0] in "0123456789+-−–.")


def _cell(text: str) -> str:
    return _once(text).replace("|", "\\|")


def _once(text: str) -> str:
    return " ".join(text.split())


def _html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = ()) -> Markup:
    columns = [(heading, "") for heading in headings]
    return html.table(columns, [[(cell, False) for cell in row] for row in rows], "", words)


def _picture(file: Path) -> Picture:
    content = file.read_bytes()
    if file.suffix == ".png":
        width, height = (int.from_bytes(content[place : place + 4], "big") for place in (16, 20))
        return Picture("png", content, round(width * 96 / 160), round(height * 96 / 160))
    points = [float(found) for found in re.findall(r'(?:width|height)="([\d.]+)pt"', content.decode())]
    return Picture("svg", content, round(points[0] * 96 / 72), round(points[1] * 96 / 72))
