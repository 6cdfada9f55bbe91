"""The fits by which defaults were chosen: `python studies/scripts/default_choices.py OUT.jsonl [--processes 14]`.

Each is trained on four fifths of the training rows of the first split and scored on the others; test rows take no part.
A line is written as soon as a fit ends, and fits that are in the file are not repeated. `--data` names the folder of
the data, as in `bayesify reproduce defaults`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

SMALL = ("concrete", "energy", "diabetes", "boston", "friedman1")
LARGE = ("power", "naval", "protein")
AUTO_PRIOR = "1.*=normal:1;*=normal:fan_in"
ENSEMBLES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "normal noise": {"tails": None},
    "not recalibrated": {"recalibrate": False},
    "wide": {"network": {"units": (200, 200, 200), "activation": "relu"}},
    "long": {"steps": 15_000},
    "wide, long": {"network": {"units": (200, 200, 200), "activation": "relu"}, "steps": 15_000},
    "slow": {"learning_rate": 1e-3, "steps": 10_000},
    "small batches": {"batch_size": 128, "steps": 12_000},
}


def fits() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The problem, the method and the settings of each fit, the most telling first."""
    for problem in LARGE:
        for name in ENSEMBLES:
            yield problem, "auto", {"ensemble": name}
    for problem in ("digits", "clinc", "mnist", "fashion-mnist"):
        for settings in ({}, {"bayesian": ["last_layer"]}, {"prior": "normal:fan_in"}):
            yield problem, "laplace", settings
        yield problem, "laplace", {"prior": "normal:fan_in", "bayesian": ["last_layer"]}
    for problem in (*SMALL, "power", "naval"):
        for p in (0.005, 0.01, 0.02, 0.05):
            yield problem, "mc-dropout", {"p": p}
    for problem in SMALL:
        for method in ("variational", "ivon"):
            for settings in ({}, {"units": [10]}, {"prior": "normal:fan_in"}):
                yield problem, method, settings
        for method in ("swag", "point", "laplace"):
            for settings in ({}, {"prior": "normal:1"}, {"learning_rate": 3e-3}, {"units": [10]}):
                yield problem, method, settings
    for problem in ("diabetes", "boston", "concrete"):
        for method in ("sghmc", "sgld"):
            for prior in ("normal:1", AUTO_PRIOR):
                yield problem, method, {"prior": prior}
    # Few rows: the others are all held out.
    for rows, method in product((200, 100), ("point", "ivon", "laplace", "ensemble")):
        for problem in SMALL:
            for prior in ("normal:1", "normal:fan_in"):
                yield problem, method, {"rows": rows, "prior": prior}
    for problem in ("digits", "clinc", "mnist"):
        for settings in ({}, {"large": 1e9}, {"learning_rate": 0.03}, {"learning_rate": 0.2}, {"hessian_init": 10.0}):
            yield problem, "ivon", settings


def key_of(problem: str, method: str, settings: dict[str, Any]) -> str:
    """The name of a fit in the file."""
    return f"{problem}|{method}|{json.dumps(settings, sort_keys=True)}"


def compute(task: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """One fit, in a process of its own."""
    import torch

    from bayesify_studies.experiments.defaults import fits as of_experiment

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem, method, settings = task
    began = time.perf_counter()
    try:
        if method == "auto":
            change_table(ENSEMBLES[settings["ensemble"]])
            found = of_experiment.fitted(problem, method, 0, validate=True)
        else:
            if "large" in settings:
                from bayesify.methods.ivon import start

                start.LARGE = settings["large"]
            given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
            given.pop("large", None)
            if rows := given.pop("rows", None):
                of_experiment.HELD_OUT = 1 - rows / len(of_experiment.PROBLEMS[problem].make(0).x_train)
            found = of_experiment.fitted(problem, method, 0, given, validate=True)
    except Exception as wrong:  # noqa: BLE001 -- the other fits go on
        found = {"error": f"{type(wrong).__name__}: {wrong}"[:300]}
    return {"key": key_of(*task), "spent": time.perf_counter() - began, **found}


def change_table(changes: dict[str, Any]) -> None:
    """Change the row of Auto's table for large tables, in this process."""
    from bayesify.methods import auto_table

    of_row = {name: changes[name] for name in ("network", "steps", "recalibrate", "tails") if name in changes}
    settings = {name: value for name, value in changes.items() if name not in of_row}
    auto_table.TABLE = tuple(
        replace(row, **of_row, settings={**row.settings, **settings}) if row.name == "large table" else row
        for row in auto_table.TABLE
    )


def summary(path: Path) -> str:
    """The scores as a table: a row for each method and setting, a column for each problem."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for line in found:
        problem, method, settings = line["key"].split("|", 2)
        named = ", ".join(f"{name} {value}" for name, value in json.loads(settings).items()) or "default"
        error = line.get("rmse", line.get("accuracy"))
        inside = line.get("coverage", line.get("ece"))
        scores = "failed" if error is None else f"{error:.4g} / {line['nll']:.3f} / {inside:.3f}"
        cells.setdefault((method, named), {})[problem] = scores
    problems = list(dict.fromkeys(line["key"].split("|")[0] for line in found))
    lines = [f"| method | settings | {' | '.join(problems)} |", "| --- " * (2 + len(problems)) + "|"]
    for (method, named), scores in sorted(cells.items()):
        lines.append(f"| {method} | {named} | {' | '.join(scores.get(problem, '') for problem in problems)} |")
    return "\n".join(lines)


def main() -> None:
    """Compute what the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="+", default=None, help="methods")
    parser.add_argument("--few-rows", action="store_true", help="only the fits to 100 and 200 rows")
    parser.add_argument("--summary", action="store_true", help="print the scores of the file as a table, and stop")
    given = parser.parse_args()
    if given.summary:
        print(summary(given.out))
        return
    if given.data is not None:
        os.environ["BAYESIFY_DATA"] = str(given.data.resolve())
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if given.out.is_file():
        done = {json.loads(line)["key"] for line in given.out.read_text(encoding="utf-8").splitlines()}
    todo = [task for task in fits() if key_of(*task) not in done and (not given.only or task[1] in given.only)]
    todo = [task for task in todo if not given.few_rows or "rows" in task[2]]
    context = multiprocessing.get_context("fork")
    with context.Pool(given.processes, maxtasksperchild=1) as pool, given.out.open("a", encoding="utf-8") as file:
        for line in pool.imap_unordered(compute, todo, chunksize=1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(f"{line['spent']:6.1f} s  {line['key']}", flush=True)


if __name__ == "__main__":
    main()
