"""How far every method is from HMC, over several seeds: `python benchmarks/hmc_distance.py`.

Each data set is one `bayesify compare --against hmc`, which goes on where an interrupted one stopped. All results are
written to docs/results/hmc-distance.json, with their figures and a page; data sets that are not run again keep theirs.
The MNIST subset takes ten minutes or more for each seed on a CPU, less on a GPU:

    python benchmarks/hmc_distance.py --data mnist --device cuda
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from bayesify.recipes.against_report import COLUMNS, answer, verdict

DATA = ("moons", "circles", "gap")
ABOUT = {
    "moons": "200 points to train on, 1,000 to test, noise 0.4; 2-5-5-2 tanh",
    "circles": "200 points to train on, 1,000 to test, noise 0.15, factor 0.8; 2-5-5-2 tanh",
    "gap": "regression, 100 points to train on at either side of a gap, 100 to test, noise 0.1 known; 1-20-1 tanh",
    "mnist": "300 images to train on, 1,000 to test; 784-50-10 tanh",
}
START, END = "<!-- findings, written by hand -->", "<!-- end of findings -->"


def run(data: str, options: argparse.Namespace) -> dict:
    out = options.folder / data
    command = ["compare", "--against", "hmc", "--data", data, "--seeds", str(options.seeds), "--out", str(out)]
    command += ["--device", options.device] if options.device != "cpu" else []
    done = subprocess.run([sys.executable, "-m", "bayesify", *command, "--json"], check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    figures = []
    for figure in found.pop("figures"):
        name = f"hmc-distance-{data}-{Path(figure).name}"
        shutil.copyfile(figure, options.out.with_name(name))
        figures.append(name)
    shown = " ".join(part for part in command if part not in {"--out", str(out)})
    kept = {name: value for name, value in found.items() if name not in {"out", "report"}}
    return {"command": f"bayesify {shown}", "figures": figures, **kept}


TOP = """# How far every method is from HMC

The same network, likelihood and prior (`normal:1`) for every method, and a long HMC run on the same data as the
reference. A seed is a data set of its own and the seed of every start, shuffle and draw; values are means over {seeds}
seeds with their standard errors, and the JSON beside this page has every value, 95% t intervals and the settings.
Settings were chosen once, on seeds that are not scored, and not by the distance to HMC.

    {command}

Machine: {machine}; other work ran on it at the same time, so costs are rough.
"""
BOTTOM = """## What the columns are

Agreement: the share of test inputs to which a method gives HMC's label. TV: the mean over the test inputs of the total
variation between its predictive distribution and HMC's (of densities, for the regression). Means apart: mean distance
of predictive means, in standard deviations of HMC's. Std ratio: the mean predictive standard deviation over HMC's; for
classes that of the probabilities over draws, for numbers that of the target, noise included. Around: the same on a
grid that reaches 60% of the data's extent beyond it. Cost: training seconds over the point estimate's. The last row is
the floor: one half of HMC's chains against the other half (`bayesify.distance`).
"""


def page(result: dict, findings: str) -> str:
    seeds = len(next(iter(result["data"].values()))["seeds"])
    parts = [TOP.format(seeds=seeds, command=result["command"], machine=result["machine"])]
    parts.append(f"{START}\n{findings.strip()}\n{END}\n")
    for data, found in result["data"].items():
        shown = [how for how in COLUMNS if any(how[0] in row["scores"] for row in found["rows"])]
        lines = [f"## {data}", "", f"{ABOUT.get(data, data)}. `{found['command']}`", ""]
        lines += [verdict(found), answer(found), ""]
        lines.append("| method | " + " | ".join(heading for _, heading, _ in shown) + " |")
        lines.append("| --- |" + " ---: |" * len(shown))
        for row in found["rows"]:
            cells = [_cell(row["scores"].get(name), form) for name, _, form in shown]
            lines.append(f"| {row['label']} | " + " | ".join(cells) + " |")
        parts.append("\n".join([*lines, "", *[f"![{data}]({figure})" for figure in found["figures"]], ""]))
    return "\n".join([*parts, BOTTOM])


def _cell(found: dict | None, form: str) -> str:
    if found is None:
        return "–"
    error = f" ± {found['standard_error']:{form}}" if "standard_error" in found else ""
    return f"{found['mean']:{form}}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, default=Path("runs/hmc-distance"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/hmc-distance.json"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(options.out.read_text())["data"] if options.out.is_file() else {}
    for data in options.data:
        before[data] = run(data, options)
        print(data, verdict(before[data]), answer(before[data]), flush=True)
    result = {
        "command": "python benchmarks/hmc_distance.py",
        "machine": f"{platform.machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}",
        "data": before,
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    written = options.out.with_suffix(".md")
    there = written.read_text() if written.is_file() else ""
    findings = there.partition(START)[2].partition(END)[0]
    written.write_text(page(result, findings))


if __name__ == "__main__":
    main()
