"""Copying a finished experiment to where results are shown: `docs/results/NAME.{md,json}` and its figures.

The folder's `README.md` is a gallery of everything that was published there: picture, question, answer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from bayesify import files
from bayesify.errors import RunError
from bayesify_studies.experiments import NAMES
from bayesify_studies.experiments.framework.experiment import RESULTS
from bayesify_studies.experiments.framework.page import READING, markdown
from bayesify_studies.experiments.framework.verdicts import verdict

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
    """A gallery of the published experiments, in the order in which they are named."""
    lines = [
        "# Results",
        "",
        "One picture, one question and one answer for each experiment. The page behind it has the",
    ]
    lines += ["published numbers, ours, and what is missing; the JSON beside it has every number.", "", READING, ""]
    for name in NAMES:
        file = folder / f"{name}.json"
        if file.is_file():
            lines += _entry(name, json.loads(file.read_text(encoding="utf-8")))
    missing = [name for name in NAMES if not (folder / f"{name}.json").is_file()]
    if missing:
        lines += [f"Not here: {', '.join(missing)}. They can be run and have no full result yet.", ""]
    beside = [f"- [{file}]({file}): {what} (`{how}`)" for file, what, how in BESIDE if (folder / file).is_file()]
    if beside:
        lines += ["## Other measurements", "", *beside]
    return "\n".join(lines) + "\n"


def _entry(name: str, found: dict[str, Any]) -> list[str]:
    """An experiment in the gallery: title, picture, question and answer."""
    preset = "" if found["preset"] == "full" else f" ({found['preset']} preset)"
    study = f"Study {found['study']}" if len(found["study"]) == 1 else found["study"].capitalize()
    entry = [f"## [{found['title']}]({name}.md){preset}", "", f"{study}. {_line(found['question'])}", ""]
    if found["pictures"]:
        picture = found["pictures"][0]
        entry += [f"[![{_line(picture['caption'])}]({picture['file']})]({name}.md)", ""]
    return [*entry, f"**{_line(verdict(found))}**", ""]


def _line(text: str) -> str:
    return " ".join(text.split())
