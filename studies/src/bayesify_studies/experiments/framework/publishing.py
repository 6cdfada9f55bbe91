"""Copying a finished experiment to where results are shown: `docs/results/NAME.{md,json}` and its figures.

The folder's `README.md` lists everything that was published there, each with its question and its answer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bayesify import files
from bayesify.errors import RunError
from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework.experiment import RESULTS
from bayesify_studies.experiments.framework.page import READING, markdown

# What else is measured: the file, what it holds, and the command.
BESIDE = (
    ("speed.md", "what being Bayesian costs, and other libraries beside ours", "make bench"),
    (
        "network-speed.md",
        "the same for ResNets, ViT, BERT and GPT-2 on one GPU",
        "python studies/scripts/network_speed.py",
    ),
    ("mnist.json", "the README's MNIST networks, seed by seed", "python studies/scripts/mnist.py"),
    (
        "mnist-tuning.jsonl",
        "a search of settings on MNIST's validation part",
        "python studies/scripts/tune_mnist.py --show --out docs/results/mnist-tuning.jsonl",
    ),
    (
        "defaults-cells.jsonl",
        "every fit behind the page on defaults, one line each",
        "python -m bayesify_studies.experiments.defaults.run --processes 14 --out runs/defaults",
    ),
    ("moments.json", "answers by moments against 10,000 draws", "python studies/scripts/moments.py"),
    ("pages.json", "small measurements that the documentation states", "python studies/scripts/pages.py"),
    (
        "demo.json",
        "the demo with every digit withheld in turn",
        "python -m bayesify.workflows.demo docs/results/demo.json",
    ),
)


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
    files.write_json(to / f"{name}.json", results)
    files.write_text(to / f"{name}.md", markdown(results, ""))
    files.write_text(to / "README.md", contents(to))
    return [to / f"{name}.md", to / f"{name}.json", *written]


def contents(folder: Path) -> str:
    """A page that lists the published experiments in the order in which they are named."""
    lines = ["# Results", "", "Each page has what was published, what we find and what the difference means; the JSON"]
    lines += ["beside it has every number, and the command that repeats it.", "", READING, ""]
    lines += ["| experiment | study | question | answer |", "| --- | --- | --- | --- |"]
    for name in NAMES:
        file = folder / f"{name}.json"
        if file.is_file():
            found = json.loads(file.read_text(encoding="utf-8"))
            preset = "" if found["preset"] == "full" else f" ({found['preset']})"
            cells = (f"[{name}]({name}.md){preset}", found["study"], found["question"], found["answer"])
            lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    missing = [name for name in NAMES if not (folder / f"{name}.json").is_file()]
    if missing:
        lines += ["", f"Not here: {', '.join(missing)}. They can be run and have no full result yet."]
    beside = [f"- [{file}]({file}): {what} (`{how}`)" for file, what, how in BESIDE if (folder / file).is_file()]
    if beside:
        lines += ["", "Beside the experiments:", "", *beside]
    return "\n".join(lines) + "\n"
