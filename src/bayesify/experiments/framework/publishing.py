"""Copying a finished experiment to where results are shown: `docs/results/NAME.{md,json}` and its figures.

The folder's `README.md` lists everything that was published there, each with its question and its answer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bayesify.errors import RunError
from bayesify.experiments import NAMES
from bayesify.experiments.framework.experiment import RESULTS
from bayesify.experiments.framework.page import markdown
from bayesify.training import checkpoint


def publish(folder: Path, to: Path) -> list[Path]:
    """The page, the numbers and the figures of a finished experiment, under names of its own; what was written."""
    file = folder / RESULTS
    if not file.is_file():
        raise RunError(f"{folder} holds no finished experiment: there is no {RESULTS} in it")
    results = json.loads(file.read_text(encoding="utf-8"))
    name = results["name"]
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in results["pictures"]:
        there = f"{name}-{picture['file']}" if not picture["file"].startswith(name) else picture["file"]
        shutil.copyfile(folder / "figures" / picture["file"], to / there)
        picture["file"] = there
        written.append(to / there)
    checkpoint.write_json(to / f"{name}.json", results)
    checkpoint.write_text(to / f"{name}.md", markdown(results, ""))
    checkpoint.write_text(to / "README.md", contents(to))
    return [to / f"{name}.md", to / f"{name}.json", *written]


def contents(folder: Path) -> str:
    """A page that lists the published experiments in the order in which they are named."""
    lines = ["# Results", "", "Each page has what was published, what we find and what the difference means; the JSON"]
    lines += ["beside it has every number, and the command that repeats it.", ""]
    lines += ["| experiment | study | question | answer |", "| --- | --- | --- | --- |"]
    for name in NAMES:
        file = folder / f"{name}.json"
        if file.is_file():
            found = json.loads(file.read_text(encoding="utf-8"))
            preset = "" if found["preset"] == "full" else f" ({found['preset']})"
            cells = (f"[{name}]({name}.md){preset}", found["study"], found["question"], found["answer"])
            lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
