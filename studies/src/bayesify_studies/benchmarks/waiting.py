"""How long people wait: the first output of each command, and fits of the scikit-learn estimator.

    first_output   seconds until a terminal, or a log, shows anything, for every command
    estimators     seconds of `BayesianClassifier(method="variational").fit`: the first fit of a process, and the next
                   one; of the clock and of the processor

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
    began = time.perf_counter(), time.process_time()
    BayesianClassifier(method="variational").fit(x, y)
    print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


def first_output(*, rounds: int = 3, progress: timing.Progress = timing.silent) -> dict[str, Any]:
    """Seconds to the first output of each command at a terminal and in a log, the median of some calls."""
    with tempfile.TemporaryDirectory() as folder:
        progress("runs to begin with")
        commands = _commands(Path(folder))
        seconds: dict[tuple[str, bool], list[float]] = {}
        for _ in range(rounds):
            for name, words in commands.items():
                progress(name)
                for terminal in (True, False):
                    seconds.setdefault((name, terminal), []).append(_until_output(words, terminal=terminal))
    shown, logged = (
        {name: statistics.median(values) for (name, at), values in seconds.items() if at is terminal}
        for terminal in (True, False)
    )
    return {
        "seconds": max(shown.values()),
        "commands": shown,
        "log_seconds": max(logged.values()),
        "log": logged,
        "rounds": rounds,
    }


def _commands(place: Path) -> dict[str, list[str]]:
    """Every command with arguments that it accepts, after the runs are made that they need."""
    run, numbers, inputs, table = (str(place / name) for name in ("run", "numbers", "inputs.csv", "table.csv"))
    train = ["train", "--data", "moons", "--method", "variational", "--epochs", "1"]
    Path(inputs).write_text("x1,x2\n0.1,0.2\n0.3,0.4\n", encoding="utf-8")
    Path(table).write_text("a,b\n" + "".join(f"{n / 7},{n % 5 + n / 9}\n" for n in range(60)), encoding="utf-8")
    _bayesify([*train, "--out", run])
    _bayesify(["train", "--data", table, "--target", "b", "--method", "point", "--epochs", "1", "--out", numbers])
    out = ["--out", str(place / "out")]
    return {
        "--help": ["--help"],
        "train": [*train, "--overwrite", *out],
        "evaluate": ["evaluate", run],
        "predict": ["predict", run, inputs],
        "recalibrate": ["recalibrate", run],
        "certify": ["certify", run],
        "series": ["series", numbers],
        "unknown": ["unknown", run],
        "ask": ["ask", run, inputs, "-n", "1"],
        "learn-on": ["learn-on", run, "--data", table],
        "bandit": ["bandit", "mushroom"],
        "prune": ["prune", run],
        "export": ["export", run, "--out", str(place / "run.safetensors"), "--format", "safetensors"],
        "compare": ["compare", "--data", "moons", "--epochs", "1", *out],
        "sweep": ["sweep", "small-grid", "--data", "moons", *out],
        "report": ["report", run],
        "serve": ["serve", run, "--port", "0"],
        "data": ["data"],
        "demo": ["demo", *out],
        "reproduce": ["reproduce", "line", "--preset", "quick", *out],
    }


def estimators(*, rounds: int = 3, progress: timing.Progress = timing.silent) -> dict[str, Any]:
    """Seconds of fits, by rows: the first one of a process and the second, medians of some processes.

    Seconds of the processor are given too: other work on the same cores changes them less.
    """
    found: dict[str, float] = {}
    for rows in ROWS:
        pairs = []
        for _ in range(rounds):
            progress(f"a fit of {rows} rows")
            said = subprocess.run(  # noqa: S603
                [sys.executable, "-W", "ignore", "-c", _FIT, str(rows)], check=True, capture_output=True, text=True
            )
            pairs.append([float(line) for line in said.stdout.split()])
        names = [f"{kind}_{rows}{of}" for kind in ("first_fit", "fit") for of in ("", "_processor")]
        found |= {name: statistics.median(column) for name, column in zip(names, zip(*pairs, strict=True), strict=True)}
    return found | {"rounds": rounds}


def _bayesify(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "bayesify", *words], check=True, capture_output=True)  # noqa: S603


def _until_output(words: list[str], *, terminal: bool) -> float:
    """Seconds until a command shows anything at a terminal, or in a file that both streams go to; it is then ended."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
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
