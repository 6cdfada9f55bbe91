"""Seconds of a training step with several processes, for the efficiency in docs/scale.md.

    python studies/scripts/process_speed.py
    torchrun --standalone --nproc-per-node=2 studies/scripts/process_speed.py

Each process has one thread. The median over the epochs is printed as JSON, and the bytes that a step exchanges.
"""

from __future__ import annotations

import json
import statistics

import torch
from torch import nn

import bayesify as bf
from bayesify.launch import is_first_process, launched_processes


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(4096, 256), torch.randint(10, (4096,))
    method = bf.Variational(net, "categorical", prior="normal:1", estimator="flipout")
    method.fit((x, y), epochs=8, batch_size=1024, progress=False, compiled=False)
    seconds = statistics.median(record["seconds"] for record in method.history.records[1:]) / 4
    if is_first_process():
        moved = sum(parameter.numel() * parameter.element_size() for parameter in method.parameters())
        print(json.dumps({"processes": launched_processes(), "s_per_step": round(seconds, 4), "bytes": moved}))


if __name__ == "__main__":
    main()
