"""What an experiment is: a question that a study left open, settings for its presets, and a function that answers it.

    experiment.run(Work) -> Findings

Everything costly goes through `Work`, which keeps it: the same call in the same folder goes on where an interrupted one
stopped, down to the epoch for trainings, and repeats nothing that is done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import RunError, choose
from bayesify.jobs import Engine
from bayesify_studies.experiments.framework.additions import Addition, Parts, extend
from bayesify_studies.experiments.framework.findings import Findings
from bayesify_studies.experiments.framework.provenance import commit
from bayesify_studies.experiments.framework.work import QUESTION, Work, on_accelerator

PRESETS = ("quick", "cpu", "full")
RESULTS = "results.json"


@dataclass(frozen=True)
class Experiment:
    """A question, whose it is, and how it is answered.

    `quick` takes minutes on two cores; `full` is the study with seeds. An experiment whose full preset needs a GPU may
    have a smaller one, `cpu`, for about an hour of one core. Their keys are the same: what `run` reads as
    `work.settings`. `parts` are those of `run` that depend on no others, for who computes them elsewhere
    (`queue.py`). `additions` joined after the experiment was first published.
    """

    name: str
    title: str
    study: str
    question: str
    run: Callable[[Work], Findings]
    quick: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Any] = field(default_factory=dict)
    cpu: Mapping[str, Any] | None = None
    additions: tuple[Addition, ...] = ()
    parts: Callable[[Work], Parts] | None = None

    def settings(self, preset: str) -> dict[str, Any]:
        """Those of a preset."""
        given = {"quick": self.quick, "cpu": self.cpu, "full": self.full}[choose("preset", preset, PRESETS)]
        if given is None:
            raise RunError(f"{self.name} has no preset cpu: choose quick or full")
        plain: dict[str, Any] = json.loads(json.dumps(dict(given)))
        return plain


def reproduce(
    experiment: Experiment,
    out: Path,
    *,
    preset: str = "quick",
    device: str = "cpu",
    engine: Engine | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Run an experiment, or what is left of it, and write `results.json`, its figures and its pages under `out`.

    The engine runs parts that do not depend on each other.
    """
    from bayesify_studies.experiments.framework.page import write_pages

    settings = experiment.settings(preset)
    work = Work(out, settings, device=device, engine=engine, progress=progress)
    claim(out, experiment, preset, overwrite=overwrite)
    done = out / RESULTS
    if done.is_file():
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return found
    findings = experiment.run(work)
    extend(findings, work, experiment.additions)
    cost = work.cost()
    # Parts may have been computed elsewhere: the command is the one that repeats them, not the one that read them.
    # Where only some needed a GPU, the others can be repeated there too.
    where = "cuda" if device == "cpu" and any(map(on_accelerator, cost.machines)) else device
    results = {
        "name": experiment.name,
        "title": experiment.title,
        "study": experiment.study,
        "question": experiment.question,
        "preset": preset,
        "command": f"bayesify reproduce {experiment.name} --preset {preset}"
        + ("" if where == "cpu" else f" --device {where}"),
        "settings": settings,
        "commit": " and ".join(cost.commits) or commit(),
        "dates": cost.dates,
        "machines": cost.machines,
        "seconds": cost.seconds,
        "code": cost.code,
        **findings.to_dict(),
    }
    write_pages(out, results)
    # All parts are done: what is left is of processes that were killed.
    files.remove_leftovers(out, out / "parts", out / "figures")
    files.write_json(done, results)
    return results


def claim(out: Path, experiment: Experiment, preset: str, *, overwrite: bool = False) -> None:
    """Make a folder that of an experiment, or refuse one that holds something else."""
    question = {"experiment": experiment.name, "preset": preset, "settings": experiment.settings(preset)}
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder")
    file = out / QUESTION
    if file.is_file():
        there = json.loads(file.read_text(encoding="utf-8"))
        if there != question and not overwrite:
            raise RunError(f"{out} holds another experiment, or one with other settings: replace it with --overwrite")
        if not overwrite:
            return
        _clear(out)
    elif out.is_dir() and not files.is_empty(out):
        raise RunError(f"{out} is not empty and holds no experiment of ours: choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    files.write_json(file, question)


def _clear(out: Path) -> None:
    for name in ("parts", "runs", "figures"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (RESULTS, "page.md", "report.html", "report.json"):
        (out / name).unlink(missing_ok=True)
