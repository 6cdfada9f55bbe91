"""The page: Auto beside the best published row of each table, and the scores of every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bayesify_studies.experiments.defaults.cells import FAILED, REFUSED, UNAFFORDABLE, Cell, Lines, Size
from bayesify_studies.experiments.defaults.goals import INTERVALS
from bayesify_studies.experiments.defaults.published import ROWS, best_row
from bayesify_studies.experiments.framework.findings import Findings, Line, Picture, Table
from bayesify_studies.experiments.uci.scores import AHEAD, LEVEL, Score, Scores, said, standing
from bayesify_studies.experiments.uci.splits import BASELINES, missing

ASKED = 4
READING = (
    "± is the standard error over splits. It is too small, because the splits share most of their training rows. Level "
    "means within one standard error of the best published row. The published rows are shown without their errors."
)
_DIGITS = {"naval": 5}


def findings(
    lines: Lines,
    size: Size,
    notes: Sequence[str] = (),
    picture: str | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Findings:
    """What the fits show.

    Args:
        lines: the fits of this experiment by key.
        size: the tables, methods and splits that were asked for.
        notes: sentences about how they were computed.
        picture: the file of the figure.
        earlier: the scores of an earlier page, which stay where they have more splits.

    Returns:
        The answer, its evidence and what is missing.

    """
    scores = Scores(lines, earlier or {})
    auto = {table: score for table in size.problems if (score := scores.of(table, "auto", "nll")) is not None}
    standings = {table: standing(score, table) for table, score in auto.items()}
    held = {table: scores.coverage(table, "auto") for table in auto}
    return Findings(
        answer=_answer(standings, held),
        lines=[_line(table, auto[table], held[table]) for table in auto],
        numbers={
            "auto": {table: _plain(score) | {"standing": standings[table]} for table, score in auto.items()},
            "coverage": held,
            "scores": _numbers(scores, size),
        },
        tables=[
            table
            for table in (
                _published(scores, size),
                _scores("RMSE", scores, size, "rmse", "Boosting predicts no distribution, so it has an RMSE alone."),
                _scores("CRPS", scores, size, "crps", "In the units of the targets, lower is better."),
                _coverage(scores, size),
                _splits(scores, size),
                _left_out(scores, size),
            )
            if table.rows
        ],
        pictures=[] if picture is None else [Picture(picture, _CAPTION)],
        shortfalls=[*notes, *_shortfalls(scores, size)],
        reading=READING,
    )


_CAPTION = (
    "Test NLL of every method at its defaults (filled, with one standard error over splits) and of the published rows "
    "(hollow), lower is better. The line is the best published row. An arrow at the edge marks a value beyond the axis."
)


def _answer(standings: dict[str, str], held: dict[str, float | None]) -> str:
    if not standings:
        return "Auto was not fitted to any of these tables."
    good = [table for table, how in standings.items() if how in {AHEAD, LEVEL}]
    ahead = [table for table, how in standings.items() if how == AHEAD]
    covered = sum(one is not None and INTERVALS[0] <= one <= INTERVALS[1] for one in held.values())
    return (
        f"Auto's test NLL is level with or ahead of the best published row on {len(good)} of {len(standings)} tables "
        f"(asked: {ASKED} of 6), and ahead on {len(ahead)}. Its 90% intervals contain 87 to 93% of the targets "
        f"on {covered} of {len(held)}."
    )


def _line(table: str, score: Score, held: float | None) -> Line:
    name, best = best_row(table)
    inside = "" if held is None else f", 90% intervals contain {100 * held:.1f}%"
    count = f"{score.splits} split{'s' if score.splits != 1 else ''}"
    return Line(
        f"{table}: test NLL of Auto", f"{best:.2f} ({name})", f"{score.text()} ({count}){inside}", said(score, table)
    )


def _published(scores: Scores, size: Size) -> Table:
    rows = [[f"published: {name}", *(f"{row[table]:.2f}" for table in size.problems)] for name, row in ROWS.items()]
    rows += _rows(size, lambda table, method, part: _text(scores.of(table, method, "nll", part), 3))
    note = (
        "Auto was named as our entry beforehand. Some of our other methods are better on a table. That was seen only "
        "on the test rows, so Auto stays our entry. Our rows differ in their number of splits (see below)."
    )
    return Table("Test NLL", ["", *size.problems], rows, note)


def _scores(title: str, scores: Scores, size: Size, name: str, note: str) -> Table:
    def cell(table: str, method: str, part: str) -> str:
        return _text(scores.of(table, method, name, part), _DIGITS.get(table, 3))

    return Table(title, ["", *size.problems], _rows(size, cell), note)


def _coverage(scores: Scores, size: Size) -> Table:
    def cell(table: str, method: str, part: str) -> str:
        held = scores.coverage(table, method, part)
        return "–" if held is None else f"{100 * held:.1f}%"

    note = "Share of all test rows of all splits. The goal was 87 to 93%."
    return Table("Share of targets that 90% intervals contain", ["", *size.problems], _rows(size, cell), note)


def _splits(scores: Scores, size: Size) -> Table:
    def cell(table: str, method: str, part: str) -> str:
        found = scores.of(table, method, "rmse", part)
        return str(found.splits) if found else "–"

    note = "There are 20 published splits, 5 of protein."
    return Table("Splits that were fitted", ["", *size.problems], _rows(size, cell), note)


def _rows(size: Size, cell: Callable[[str, str, str], str]) -> list[list[str]]:
    """A row for each of our methods and baselines, where it has a score."""
    methods = [(method, "default") for method in ("auto", *size.methods)]
    found = []
    for method, part in [*dict.fromkeys(methods), *((name, "baseline") for name in BASELINES)]:
        row = [cell(table, method, part) for table in size.problems]
        if any(text != "–" for text in row):
            found.append([method, *row])
    return found


def _left_out(scores: Scores, size: Size) -> Table:
    """Methods without any score on a table, and why."""
    parts = {**dict.fromkeys(size.methods, "default"), **dict.fromkeys(BASELINES, "baseline")}
    rows = {}
    for key, line in sorted(scores.lines.items()):
        cell = Cell.of(key)
        scored = scores.of(cell.problem, cell.method, "rmse", parts[cell.method]) is not None
        if line["status"] in {REFUSED, UNAFFORDABLE, FAILED, "broken"} and not scored:
            said = "not run" if line["reason"].endswith("not installed") else line["status"]
            rows[cell.problem, cell.method] = [cell.problem, cell.method, said, line["reason"]]
    return Table("Without a score", ["table", "method", "", "reason"], list(rows.values()))


def _shortfalls(scores: Scores, size: Size) -> list[str]:
    lines = scores.lines
    left = [cell for cell in missing(lines, size) if cell.part == "default"]
    kept = {
        (table, method): scores.more(table, method)
        for table in size.problems
        for method in size.methods
        if scores.more(table, method)
    }
    # What only the earlier page has is not missing.
    count = len(left) - sum(kept.values())
    commits = sorted({str(line["commit"]) for line in lines.values() if line.get("commit")})
    told = [f"The fits were computed at commits {', '.join(commits)}."] if commits else []
    if count:
        of_auto = sum(cell.method == "auto" for cell in left)
        of_auto -= sum(more for (_, method), more in kept.items() if method == "auto")
        told.append(f"For lack of time, {count:,} fits were not computed, {of_auto} of them with Auto.")
    if kept:
        told.append(
            f"{sum(kept.values()):,} fits are in the means of this page, but not in the file of fits: {_named(kept)}."
        )
    seen = {Cell.of(key).method for key, line in lines.items() if line["status"] == "fine"}
    told += [f"{name} has no fit here." for name in size.methods if name not in seen]
    return [*told, "All methods have their default settings. No setting was chosen on test rows of these tables."]


def _named(kept: Mapping[tuple[str, str], int]) -> str:
    """How many fits of each method."""
    methods = dict.fromkeys(method for _, method in kept)
    counts = {name: sum(more for (_, method), more in kept.items() if method == name) for name in methods}
    return ", ".join(f"{count} with {'Auto' if name == 'auto' else name}" for name, count in counts.items())


def _numbers(scores: Scores, size: Size) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for table in size.problems:
        for method, part in [*((one, "default") for one in size.methods), *((one, "baseline") for one in BASELINES)]:
            for name in ("nll", "rmse", "crps"):
                score = scores.of(table, method, name, part)
                if score is not None:
                    found.setdefault(table, {}).setdefault(method, {})[name] = _plain(score)
            held = scores.coverage(table, method, part)
            if held is not None:
                found[table][method]["coverage"] = held
    return found


def _plain(score: Score) -> dict[str, Any]:
    finite = abs(score.mean) < float("inf")
    return {"mean": score.mean if finite else None, "standard_error": score.error, "splits": score.splits}


def _text(score: Score | None, digits: int) -> str:
    return "–" if score is None else score.text(digits)
