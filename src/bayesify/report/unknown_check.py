"""The check for unknown inputs of a run in its report: what it accepts of the test inputs and of unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.report.blocks import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report


def unknown_checks(report: Report, results: Sequence[MethodResult], unknown_name: str) -> None:
    """A row for each method with a check; nothing where no method has one."""
    rows = [
        [result.label, found["by"], found["coverage"], found["accepted"], found.get("unknown_accepted")]
        for result in results
        if (found := result.unknown_check)
    ]
    if not rows:
        return
    report.section(
        "Unknown inputs",
        'A check that was fitted on the training inputs answers "I do not know" to what is unlike them, however sure '
        "the network is. It comes before any threshold on the confidence.",
    )
    columns = [
        Column("method"),
        Column("by"),
        Column("training inputs accepted", ".1%"),
        Column("test inputs accepted", ".1%", better="higher"),
        Column(f"accepted of {unknown_name}", ".1%", better="lower"),
    ]
    shown = len(columns) if any(row[-1] is not None for row in rows) else len(columns) - 1
    report.table(columns[:shown], [row[:shown] for row in rows])
