"""Seconds of a training step with several processes, for the efficiency in docs/scale.md.

    python studies/scripts/process_speed.py --table --into scale.json
    python studies/scripts/process_speed.py
    torchrun --standalone --nproc-per-node=2 studies/scripts/process_speed.py
    torchrun --standalone --nproc-per-node=2 studies/scripts/process_speed.py --estimator weight --distributed sharded

Each process has one thread, unless `--threads` says otherwise. The median over the epochs is printed as JSON, and the
bytes that a step exchanges: the gradients of means and widths, or the drawn weights twice and their gradient. The rows
of the table take turns, and the median of three rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import bayesify as bf
from bayesify import files
from bayesify.launch import is_first_process, launched_processes

ROWS = {
    "one process": (1, ()),
    "one process with two threads": (1, ("--threads", "2")),
    "two processes": (2, ()),
    "one process, weight draws": (1, ("--estimator", "weight")),
    "two processes, sharded, weight draws": (2, ("--estimator", "weight", "--distributed", "sharded")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--distributed", choices=("sharded", "own-draws", "sharded-own-draws"))
    parser.add_argument("--estimator", default="flipout", choices=("weight", "flipout"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="measure all rows of the page")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--into", type=Path, help="a JSON file, whose entry `processes` becomes the table")
    options = parser.parse_args()
    if options.table:
        table(options.rounds, options.into)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(4096, 256), torch.randint(10, (4096,))
    method = bf.Variational(net, "categorical", prior="normal:1", estimator=options.estimator)
    how = options.distributed or True
    method.fit((x, y), epochs=8, batch_size=1024, progress=False, compiled=False, distributed=how)
    seconds = statistics.median(record["seconds"] for record in method.history.records[1:]) / 4
    if is_first_process():
        weights = method.network.size * method.mu.element_size()
        # The gradients of means and widths; drawn weights twice and their gradient; means and widths twice and the
        # gradients of both. Flipout gathers means, widths and drawn weights once, and adds their gradients.
        sharded = 3 if options.estimator == "weight" else 6
        vectors = {None: 2, "own-draws": 2, "sharded": sharded, "sharded-own-draws": 6}[options.distributed]
        about = {"processes": launched_processes(), "distributed": options.distributed, "estimator": options.estimator}
        print(json.dumps({**about, "s_per_step": round(seconds, 4), "bytes": vectors * weights}))


def table(rounds: int, into: Path | None) -> None:
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(rounds):
        for name, (processes, more) in ROWS.items():
            start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
            command = [sys.executable, *(start if processes > 1 else ()), __file__, *more]
            environment = {**os.environ, "OMP_NUM_THREADS": "2" if "2" in more else "1"}
            told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            found[name].append(json.loads(told.strip().splitlines()[-1])["s_per_step"])
            print(name, found[name][-1], flush=True)
    middle = {name: statistics.median(values) for name, values in found.items()}
    result = {
        "ms_per_step": {name: 1e3 * value for name, value in middle.items()},
        "rounds": found,
        "cores": os.cpu_count(),
        "threads": middle["one process"] / middle["one process with two threads"],
        "copies": middle["one process"] / middle["two processes"],
        "parts": middle["one process, weight draws"] / middle["two processes, sharded, weight draws"],
    }
    print(json.dumps(result, indent=2))
    if into is not None:
        kept = json.loads(into.read_text(encoding="utf-8")) if into.is_file() else {}
        files.write_json(into, {**kept, "processes": result})


if __name__ == "__main__":
    main()
