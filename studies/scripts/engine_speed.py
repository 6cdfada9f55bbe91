"""How much faster a search is in two processes and on Ray than in one process, each part with one thread.

    python studies/scripts/engine_speed.py --into scale.json

The same search of eight settings in four parts, by each engine in turn. Ray runs on this machine with two processors;
its time counts starting it. The weights must be the same, to the bit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bayesify import files

ENGINES = {
    "one process": ("--threads", "1"),
    "two processes": ("--jobs", "2"),
    "ray": ("--engine", "ray"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--into", type=Path, help="a JSON file, whose entry `engines` becomes the result")
    asked = parser.parse_args()
    walls, weights = {name: [] for name in ENGINES}, set()
    for _ in range(asked.rounds):
        for name, options in ENGINES.items():
            with tempfile.TemporaryDirectory() as folder:
                walls[name].append(seconds(Path(folder), options, asked.epochs))
                winners = sorted(Path(folder).glob("*/winner/model.safetensors"))
                weights.add(tuple(winner.read_bytes() for winner in winners))
            print(name, f"{walls[name][-1]:.1f} s", flush=True)
    middle = {name: statistics.median(values) for name, values in walls.items()}
    result = {
        "epochs": asked.epochs,
        "cores": os.cpu_count(),
        "seconds": middle,
        "speedup": {name: middle["one process"] / value for name, value in middle.items()},
        "same_bits": len(weights) == 1,
    }
    print(json.dumps(result, indent=2))
    if asked.into is not None:
        kept = json.loads(asked.into.read_text(encoding="utf-8")) if asked.into.is_file() else {}
        files.write_json(asked.into, {**kept, "engines": result})


def seconds(folder, options, epochs):
    """The time of a whole command, with the start of Python."""
    search = [
        "sweep",
        "small-grid",
        "--data",
        "digits",
        "--normalise",
        "standard",
        "--units",
        "100",
        "--per-fleet",
        "2",
    ]
    command = [sys.executable, "-m", "bayesify", *search, "--epochs", str(epochs), "--out", str(folder), *options]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
