"""Do the defaults work? Every method and Auto on many problems as they come, against tuned settings and other models.

problems, fits   the data, and one fit with its scores
search           the settings that "tuned" stands for
baselines        boosting, a Gaussian process and NGBoost
distances        moons and circles against HMC
posteriors       regressions with reference posteriors
cells, run       which fits there are, and how they are computed in many processes
verdicts, goals  what the scores say
page, pictures   the page
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify_studies.experiments.defaults import pictures, verdicts
from bayesify_studies.experiments.defaults.cells import Size
from bayesify_studies.experiments.defaults.lines import EARLIER, FILE, NOTES, earlier_in, notes_in, read
from bayesify_studies.experiments.defaults.page import findings
from bayesify_studies.experiments.framework.code_state import digest
from bayesify_studies.experiments.framework.experiment import Experiment, claim, reproduce
from bayesify_studies.experiments.framework.findings import Findings, Picture
from bayesify_studies.experiments.framework.work import SEVERAL, Work


def answer(work: Work) -> Findings:
    """Compute the cells that the folder lacks, and say what they show."""
    size = size_of(work.settings)
    work.once("cells", computed, work.folder, size, work.jobs, work["minutes"], work.progress)
    lines = read(work.folder / FILE)
    found = findings(lines, size, notes_in(work.folder))
    judged = verdicts.judged(lines)
    if judged:
        found.pictures = [Picture(work.figure("fits", pictures.fits(judged)), pictures.CAPTION)]
    return found


def computed(folder: Path, size: Size, jobs: int, minutes: float | None, say: bool) -> dict[str, Any]:
    """Compute the cells, and count what they took and where."""
    from bayesify_studies.experiments.defaults.run import work_through

    work_through(folder, size, processes=jobs, minutes=minutes, say=say)
    return cost(folder)


def cost(folder: Path) -> dict[str, Any]:
    """Seconds of all cells of a folder, the machines and commits that they were computed with, and the last day.

    An earlier page beside them has its own; its commits' cells are in its seconds.
    """
    lines, earlier = read(folder / FILE).values(), earlier_in(folder)
    machines, commits = ({line[name] for line in lines if line.get(name)} for name in ("machine", "commit"))
    before = set(earlier["commit"].split(" and ")) if earlier else set()
    machines |= {name for told in earlier.get("machines", []) for name in told.split(" and ")}
    found: dict[str, Any] = {
        "cells": len(lines),
        "seconds": earlier.get("seconds", 0.0)
        + sum(line.get("seconds") or 0.0 for line in lines if line.get("commit") not in before),
        "machine": " and ".join(sorted(machines)) or "none",
    }
    days = [line["date"][:10] for line in lines if line.get("date")]
    commits |= before
    # Cells say themselves by which code they were computed; it need not be this code.
    return found | ({"commit": " and ".join(sorted(commits)), "date": max(days)} if commits and days else {})


def size_of(settings: dict[str, Any]) -> Size:
    """How much a preset asks for."""
    named: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name != "minutes"
    }
    return replace(Size(), **named)


def page_of(cells: Path, out: Path) -> dict[str, Any]:
    """Write the page from cells that were computed elsewhere, without computing more.

    Args:
        cells: the folder of their file.
        out: a new folder for the page, as `bayesify reproduce` makes it.

    Returns:
        The results.

    """
    return from_cells(EXPERIMENT, cells, out)


def from_cells(experiment: Experiment, cells: Path, out: Path) -> dict[str, Any]:
    """The page of an experiment whose cells are in another folder: its results."""
    if out.exists():
        raise ValueError(f"{out} exists: name a new folder for the page")
    if not (cells / FILE).is_file():
        raise ValueError(f"{cells} holds no {FILE}: compute cells first")
    claim(out, experiment, "full")
    for name in (FILE, NOTES, EARLIER):
        if (cells / name).is_file():
            shutil.copyfile(cells / name, out / name)
    (out / "parts").mkdir()
    about = cost(out)
    module = experiment.run.__module__
    alone = " and " not in about.get("commit", "")
    files.write_json(out / "parts" / "cells.json", about | {"code": {module: digest(module) if alone else SEVERAL}})
    return reproduce(experiment, out, preset="full", progress=False)


EXPERIMENT = Experiment(
    name="defaults",
    title="Do the defaults work?",
    study="ours",
    question="With no settings given, how good is each method compared with the same method tuned, a plain "
    "network, gradient boosting and HMC? Does it warn when it fails?",
    run=answer,
    quick={
        "problems": ["moons", "gap", "diabetes"],
        "methods": ["point", "ensemble", "mc-dropout", "variational", "ivon", "laplace", "swag"],
        "seeds": 1,
        "tuned_seeds": 1,
        "distance_seeds": 0,
        "splits": 1,
        "parts": ["default", "baseline", "posterior"],
        "minutes": 10,
    },
    full={"seeds": 5, "tuned_seeds": 3, "distance_seeds": 20, "splits": 20, "minutes": None},
)
