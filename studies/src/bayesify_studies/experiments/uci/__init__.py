"""Six UCI regressions on their published splits: every method and Auto at their defaults, beside published scores.

The fits, their scores and the processes are those of `defaults`; here are which fits there are (`splits`), what they
show (`scores`), the page (`page`) and its picture (`picture`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesify_studies.experiments.defaults import cost, from_cells
from bayesify_studies.experiments.defaults.cells import METHODS, Size
from bayesify_studies.experiments.defaults.lines import FILE, earlier_in, notes_in, read
from bayesify_studies.experiments.defaults.published import UCI
from bayesify_studies.experiments.framework.experiment import Experiment
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.work import Work
from bayesify_studies.experiments.uci.page import findings
from bayesify_studies.experiments.uci.picture import draw
from bayesify_studies.experiments.uci.scores import Scores
from bayesify_studies.experiments.uci.splits import belongs, missing


def answer(work: Work) -> Findings:
    """Compute the fits that the folder lacks, and say what they show."""
    size = Size(tuple(work["tables"]), tuple(work["methods"]), seeds=work["splits"], parts=("default", "baseline"))
    work.once("cells", computed, work.folder, size, work.jobs, work["minutes"], work.progress)
    lines = {key: line for key, line in read(work.folder / FILE).items() if belongs(key, size)}
    earlier = earlier_in(work.folder).get("numbers", {}).get("scores", {})
    picture = work.figure("nll", draw(Scores(lines, earlier), size)) if lines else None
    return findings(lines, size, notes_in(work.folder), picture, earlier)


def computed(folder: Path, size: Size, jobs: int, minutes: float | None, say: bool) -> dict[str, Any]:
    """Compute the fits, and count what they took and where."""
    from bayesify_studies.experiments.defaults.run import work_through

    work_through(folder, size, processes=jobs, minutes=minutes, say=say, order=missing)
    return cost(folder)


def page_of(cells: Path, out: Path) -> dict[str, Any]:
    """Write the page from fits that were computed elsewhere, those of `defaults` among them.

    A file `earlier.json` beside the fits has the results of an earlier page, whose scores stay where they have more
    splits.

    Args:
        cells: the folder of their file.
        out: a new folder for the page, as `bayesify reproduce` makes it.

    Returns:
        The results.

    """
    return from_cells(EXPERIMENT, cells, out)


EXPERIMENT = Experiment(
    name="uci",
    title="UCI regression on the published splits",
    study="the field",
    question="On six tables that are common benchmarks, how good are Auto and each method at their defaults, compared "
    "with published results?",
    run=answer,
    quick={
        "tables": ["boston", "energy"],
        "methods": ["point", "ensemble", "variational", "auto"],
        "splits": 1,
        "minutes": 10,
    },
    full={"tables": list(UCI), "methods": list(METHODS), "splits": 20, "minutes": None},
)
