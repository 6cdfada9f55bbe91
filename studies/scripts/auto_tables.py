"""Score `bf.Auto` on nine tables of numbers, each split beside gradient boosting, into a file of JSON lines.

    python studies/scripts/auto_tables.py results.jsonl --splits 0,1 --tables boston,concrete

A split that is in the file already is not fitted again, so that the command can be stopped and repeated.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import bayesify as bf

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

UCI = ("boston", "concrete", "energy", "naval", "power", "protein")
TABLES = (*UCI, "diabetes", "friedman1", "friedman2")


def load(table: str, split: int) -> Split:
    """Training inputs and targets, then those for testing: a published split, or one by its seed."""
    if table in UCI:
        data = bf.data.load(f"uci/{table}", split=split)
        x, y, x_test, y_test = (part.numpy() for part in (data.x_train, data.y_train, data.x_test, data.y_test))
        return x, y, x_test, y_test
    makers: dict[str, Callable[[], Any]] = {
        "diabetes": lambda: load_diabetes(return_X_y=True),
        "friedman1": lambda: make_friedman1(n_samples=2000, noise=1.0, random_state=split),
        "friedman2": lambda: make_friedman2(n_samples=2000, noise=125.0, random_state=split),
    }
    x, y = makers[table]()
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2 if table == "diabetes" else 0.5, random_state=split)
    return x, y, x_test, y_test


def score(table: str, split: int) -> dict[str, Any]:
    """The scores of one split."""
    x, y, x_test, y_test = load(table, split)
    began, cpu = time.perf_counter(), time.process_time()
    auto = bf.Auto(likelihood="gaussian")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = auto.fit((x, y), seed=split, progress=False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    targets = torch.tensor(y_test)
    prediction = method.predict(torch.tensor(x_test, dtype=torch.float32), draws=400)
    low, high = prediction.interval(0.9)
    boosting = HistGradientBoostingRegressor(random_state=0).fit(x, y)
    return {
        "table": table,
        "split": split,
        "rows": len(x),
        "row": auto.choice.row if auto.choice else "",
        "method": method.name,
        "nll": -float(prediction.log_prob(targets).double().mean()),
        "rmse": float((prediction.mean - targets).double().square().mean().sqrt()),
        "inside": float(((targets >= low) & (targets <= high)).double().mean()),
        "tested": len(y_test),
        "boosting_rmse": float(np.sqrt(np.mean((boosting.predict(x_test) - y_test) ** 2))),
        "warnings": sorted(method.warnings),
        "seconds": seconds,
        "cpu_seconds": cpu,
    }


def main() -> None:
    """Score the splits that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--splits", default="0")
    parser.add_argument("--tables", default=",".join(TABLES))
    arguments = parser.parse_args()
    lines = arguments.file.read_text().splitlines() if arguments.file.exists() else []
    results = [json.loads(line) for line in lines]
    done = {(result["table"], result["split"]) for result in results}
    for split in map(int, arguments.splits.split(",")):
        for table in arguments.tables.split(","):
            if (table, split) not in done:
                with arguments.file.open("a") as file:
                    file.write(json.dumps(score(table, split)) + "\n")


if __name__ == "__main__":
    main()
