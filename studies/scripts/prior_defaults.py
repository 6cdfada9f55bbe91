"""Which prior suits networks of any width: fixed, by fan-in, or between the two, on small tables, by validation NLL.

    python studies/scripts/prior_defaults.py RESULTS.jsonl [--seeds 1] [--data uci/boston moons]

Mean-field variational perceptrons at their default settings, 1,000 steps in batches of 128, one split for each seed. A
fifth of the training rows is set aside: the choice is made there, and the test rows are only reported. A cell that is
in the file is not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

import bayesify as bf
from bayesify.workflows.build import fit_settings, make_method, with_defaults
from bayesify.workflows.prepare import prepare_data
from bayesify.workflows.recipe import make_recipe

DATA = ("uci/boston", "uci/energy", "uci/concrete", "diabetes", "moons")
# `capped:C` is a normal of scale sqrt(C / fan-in), and never above 1.
PRIORS = ("normal:1", "normal:fan_in", "capped:10")
NETWORKS = ((10,), (50,), (200,), (1000,), (200, 200), (50, 50), (50, 50, 50))
STEPS, BATCH = 1000, 128


def one(data: str, units: tuple[int, ...], prior: str, seed: int, folder: Path) -> dict[str, Any]:
    name = data
    if data == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        name = str(folder / "diabetes.csv")
        heading = ",".join([*(f"x{number}" for number in range(x.shape[1])), "y"])
        np.savetxt(name, np.column_stack((x, y)), delimiter=",", header=heading, comments="")
    settings = {"data": name, "method": "variational", "units": units, "layers": len(units)}
    settings |= {} if prior.startswith("capped:") else {"prior": prior}
    recipe = make_recipe(
        {}, {**settings, "validation": 0.2, "seed": seed, **({} if data == "moons" else {"split": seed})}
    )
    prepared = prepare_data(recipe)
    recipe = with_defaults(recipe, prepared)
    if prior.startswith("capped:"):
        network = make_method(recipe.with_settings({"prior": "normal:1"}), prepared).network
        most = float(prior.partition(":")[2])
        scales = {weight.name: min(1.0, math.sqrt(most / weight.fan_in)) for weight in network.weights}
        recipe = recipe.with_settings({"prior": ";".join(f"{name}=normal:{scale}" for name, scale in scales.items())})
    rows = len(prepared.train[0])
    recipe = recipe.with_settings({"epochs": math.ceil(STEPS / math.ceil(rows / BATCH))})
    method, began = make_method(recipe, prepared), time.process_time()
    method.fit(prepared.train, progress=False, **fit_settings(recipe, rows))
    spent = time.process_time() - began
    assert prepared.validation is not None
    scored = {
        part: bf.evaluate(method, of).to_dict()
        for part, of in (("validation", prepared.validation), ("test", prepared.test))
    }
    return {
        "data": data,
        "units": list(units),
        "prior": prior,
        "seed": seed,
        "rows": rows,
        "validation_nll": scored["validation"]["nll"],
        "test_nll": scored["test"]["nll"],
        "kl": method.history["kl"][-1],
        "cpu_seconds": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", bf.BayesifyWarning)
    known = []
    if arguments.results.exists():
        known = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    done = {(row["data"], tuple(row["units"]), row["prior"], row["seed"]) for row in known}
    with tempfile.TemporaryDirectory() as folder:
        for seed, units, data, prior in itertools.product(range(arguments.seeds), NETWORKS, arguments.data, PRIORS):
            if (data, units, prior, seed) not in done:
                known.append(one(data, units, prior, seed, Path(folder)))
                with arguments.results.open("a") as file:
                    file.write(json.dumps(known[-1]) + "\n")
    _table(known, arguments.data)


def _table(known: list[dict[str, Any]], data: list[str]) -> None:
    print(f"| hidden units | {' | '.join(data)} |")
    print(f"| --- |{' ---: |' * len(data)}")
    for units in NETWORKS:
        cells = []
        for name in data:
            cell = []
            for part in ("validation_nll", "test_nll"):
                each = []
                for prior in PRIORS:
                    rows = [
                        row for row in known if (row["data"], tuple(row["units"]), row["prior"]) == (name, units, prior)
                    ]
                    each.append(f"{sum(row[part] for row in rows) / len(rows):.2f}" if rows else "-")
                cell.append(" / ".join(each))
            cells.append(f"{cell[0]} (test {cell[1]})")
        print(f"| {'-'.join(map(str, units))} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
