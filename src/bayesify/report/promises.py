"""The guarantees of a run in its report: what, for which inputs, and from how many examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesify.decisions import conformal_of
from bayesify.decisions.refusal import promised
from bayesify.report.blocks import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bayesify.evaluation.results import MethodResult
    from bayesify.report.report import Report


def promises(report: Report, results: Sequence[MethodResult]) -> None:
    """A table of what was guaranteed for each method and what was found here; nothing where nothing was guaranteed."""
    rows = []
    for result in results:
        sets = conformal_of(result.method)
        for promise in (*promised(result.method), *(() if sets is None else (sets,))):
            about = promise.certificate
            rows.append(
                [result.label, about.promise, about.found, about.provenance.examples, about.provenance.population]
            )
        if result.method.recalibration is not None:
            rows.append([result.label, f"Recalibrated by {result.method.recalibration.name}.", "", None, ""])
    if not rows:
        return
    report.section(
        "Guarantees",
        "They hold for inputs drawn like the calibration examples, which are left out of the scores of this page.",
    )
    columns = [
        Column("method"),
        Column("guarantee"),
        Column("found in calibration"),
        Column("examples", ",d"),
        Column("for"),
    ]
    report.table(columns, rows)
