"""Seconds of a training step with several processes, for the efficiency in docs/scale.md.

    python studies/scripts/process_speed.py
    torchrun --standalone --nproc-per-node=2 studies/scripts/process_speed.py
    torchrun --standalone --nproc-per-node=2 studies/scripts/process_speed.py --estimator weight --distributed sharded

Each process has one thread. The median over the epochs is printed as JSON, and the bytes that a step exchanges: the
gradients of means and widths, or the drawn weights twice and their gradient.
"""

from __future__ import annotations

import argparse
import json
import statistics

import torch
from torch import nn

import bayesify as bf
from bayesify.launch import is_first_process, launched_processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--distributed", choices=("sharded", "own-draws", "sharded-own-draws"))
    parser.add_argument("--estimator", default="flipout", choices=("weight", "flipout"))
    options = parser.parse_args()
    torch.set_num_threads(1)
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


if __name__ == "__main__":
    main()
