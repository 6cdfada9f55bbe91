"""How long people wait: the first output of each command at a terminal, and fits of the scikit-learn estimator.

    first_output   seconds until a terminal shows anything, for every command that loads PyTorch
    estimators     seconds of `BayesianClassifier(method="variational").fit`: the first fit of a process, and the next

Each command and each first fit runs in a process of its own. Importing bayesify is not counted in a fit.
"""

from __future__ import annotations

import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bayesify_studies.benchmarks import timing

ROWS = (100, 1000)
_FIT = """
import sys, time
import numpy as np
from bayesify.sklearn import BayesianClassifier
rows = int(sys.argv[1])
random = np.random.default_rng(0)
x = random.normal(size=(rows, 10))
y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
for _ in range(2):
    began = time.perf_counter()
    BayesianClassifier(method="variational").fit(x, y)
    print(time.perf_counter() - began)
"""


def first_output(*, rounds: int = 3, progress: timing.Progress = timing.silent) -> dict[str, Any]:
    """Seconds to the first output of each command, the median of some calls."""
    with tempfile.TemporaryDirectory() as folder:
        run, inputs = Path(folder) / "run", Path(folder) / "inputs.csv"
        train = ["train", "--data", "moons", "--method", "variational", "--epochs", "1"]
        progress("a run to begin with")
        _bayesify([*train, "--out", str(run)])
        inputs.write_text("x0,x1\n0.1,0.2\n", encoding="utf-8")
        commands = {
            "train": [*train, "--overwrite", "--out", str(Path(folder) / "again")],
            "evaluate": ["evaluate", str(run)],
            "predict": ["predict", str(run), str(inputs)],
            "prune": ["prune", str(run)],
            "report": ["report", str(run)],
            "compare": ["compare", "--data", "moons", "--epochs", "1", "--out", str(Path(folder) / "compared")],
            "data": ["data"],
            "--help": ["--help"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, words in commands.items():
                progress(name)
                seconds[name].append(_until_output(words))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {"seconds": max(medians.values()), "commands": medians, "rounds": rounds}


def estimators(*, rounds: int = 3, progress: timing.Progress = timing.silent) -> dict[str, Any]:
    """Seconds of fits, by rows: the first one of a process and the second, medians of some processes."""
    found: dict[str, float] = {}
    for rows in ROWS:
        pairs = []
        for _ in range(rounds):
            progress(f"a fit of {rows} rows")
            said = subprocess.run(  # noqa: S603
                [sys.executable, "-W", "ignore", "-c", _FIT, str(rows)], check=True, capture_output=True, text=True
            )
            pairs.append([float(line) for line in said.stdout.split()])
        found[f"first_fit_{rows}"], found[f"fit_{rows}"] = (
            statistics.median(column) for column in zip(*pairs, strict=True)
        )
    return found | {"rounds": rounds}


def _bayesify(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "bayesify", *words], check=True, capture_output=True)  # noqa: S603


def _until_output(words: list[str]) -> float:
    """Seconds until a terminal that runs a command shows anything; the command is then ended."""
    ours, theirs = pty.openpty()
    began = time.perf_counter()
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "bayesify", *words], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        os.read(ours, 1)
        seconds = time.perf_counter() - began
        process.kill()
    os.close(ours)
    return seconds
