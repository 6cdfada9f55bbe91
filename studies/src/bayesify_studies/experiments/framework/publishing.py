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
    ("speed.md", "the cost of Bayesian training, and a comparison with other libraries", "make bench"),
    (
        "network-speed.md",
        "the same for ResNets, ViT, BERT and GPT-2 on one GPU",
        "python studies/scripts/network_speed.py",
    ),
    (
        "scale.json",
        "requests per second of a server with one and two workers, and training steps with one and two processes",
        "python studies/scripts/serve_wide.py; python studies/scripts/process_speed.py --table",
    ),
    (
        "studio.json",
        "how many milliseconds the studio takes in a browser to show its page, and to answer a pen stroke",
        "python studies/scripts/studio.py --out docs/results/studio.json",
    ),
    ("mnist.json", "the README's MNIST networks, seed by seed", "python studies/scripts/mnist.py"),
    (
        "mnist-tuning.jsonl",
        "a search of settings on validation images of MNIST",
        "python studies/scripts/tune_mnist.py --show --out docs/results/mnist-tuning.jsonl",
    ),
    (
        "defaults-cells.jsonl",
        "every fit of the page on defaults, one per line",
        "python -m bayesify_studies.experiments.defaults.run --processes 14 --out runs/defaults",
    ),
    ("moments.json", "predictions by moments, compared with 10,000 draws", "python studies/scripts/moments.py"),
    (
        "pymc-full-rank.json",
        "the ELBO of PyMC's full-rank ADVI beside ours, on the network of hmc-distance",
        "python studies/scripts/pymc_full_rank.py --python /path/of/pymc/bin/python",
    ),
    ("pages.json", "small measurements for other pages of the documentation", "python studies/scripts/pages.py"),
    (
        "demo.json",
        "the demo's scores, each digit left out of training in turn",
        "python -m bayesify.workflows.demo docs/results/demo.json",
    ),
)

# What the gallery says of an experiment that repeats no study.
OTHERS = {
    "beyond the studies": "Not from a study",
    "ours": "Our own test",
    "the field": "An open question of the field",
}
INTRODUCTION = (
    "Each experiment has one question, one picture and one answer. Its page has the published numbers, ours, and what",
    "is missing. The JSON file of the same name has every number.",
    "",
    "Studies A to E are published projects and lectures on Bayesian neural networks. They follow Blundell et al. 2015,",
    "*Weight uncertainty in neural networks*. Study F stands for further experiments of that paper. We repeat all of",
    "them with several seeds, and choose settings on validation data.",
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
    lines = ["# Results", "", *INTRODUCTION, "", READING, ""]
    for name in NAMES:
        file = folder / f"{name}.json"
        if file.is_file():
            lines += _entry(name, json.loads(file.read_text(encoding="utf-8")))
    missing = [name for name in NAMES if not (folder / f"{name}.json").is_file()]
    if missing:
        lines += [f"Not yet here: {', '.join(missing)}. These can be run, but have no full result yet.", ""]
    beside = [f"- [{file}]({file}): {what} (`{how}`)" for file, what, how in BESIDE if (folder / file).is_file()]
    if beside:
        lines += ["## Other measurements", "", *beside]
    return "\n".join(lines) + "\n"


def _entry(name: str, found: dict[str, Any]) -> list[str]:
    """An experiment in the gallery: title, picture, question and answer."""
    preset = "" if found["preset"] == "full" else f" ({found['preset']} preset)"
    study, question = OTHERS.get(found["study"], f"Study {found['study']}"), _line(found["question"])
    told = question if study.lower() in question.lower() else f"{study}. {question}"
    entry = [f"## [{found['title']}]({name}.md){preset}", "", told, ""]
    if found["pictures"]:
        picture = found["pictures"][0]
        entry += [f"[![{_line(picture['caption'])}]({picture['file']})]({name}.md)", ""]
    return [*entry, f"**{_line(verdict(found))}**", ""]


def _line(text: str) -> str:
    return " ".join(text.split())
