"""A batch that does not fit on a GPU is split: the same batch size and objective, checked on a real card.

PYTHONPATH=src python studies/scripts/out_of_memory.py: fills the card up to a few hundred MiB, trains, and compares
the weights with those of a training that has the whole card.
"""

import json
import os
from pathlib import Path

import torch
from torch import nn

import bayesify as bf


def trained(*, compiled, room):
    """A short training, with only `room` bytes of the card free."""
    torch.manual_seed(0)
    width = 4096
    net = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    x = torch.randn(16_384, 256, device="cuda")
    y = torch.randint(10, (16_384,), device="cuda")
    bnn = bf.Variational(net, "categorical", prior="normal:1").to("cuda")
    settings = {"epochs": 1, "batch_size": 8192, "optimizer": "sgd", "learning_rate": 1e-2, "progress": False}
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    filler = torch.empty(max(0, free - room), dtype=torch.uint8, device="cuda") if room else None
    try:
        bnn.fit((x, y), device="cuda", compiled=compiled, **settings)
    finally:
        del filler
        torch.cuda.empty_cache()
    return bnn


def main():
    """Print one JSON object."""
    found = {}
    for compiled in (False, None):
        whole = trained(compiled=compiled, room=0)
        for room in (2 << 30, 1200 << 20):
            name = f"compiled={compiled}, {room >> 20} MiB free"
            try:
                split = trained(compiled=compiled, room=room)
                difference = float((whole.mu - split.mu).abs().max() / whole.mu.abs().max())
                found[name] = {"parts": split.plan.accumulate, "batch": split.plan.batch_size, "difference": difference}
            except (RuntimeError, MemoryError) as problem:
                found[name] = {"error": str(problem).splitlines()[0][:200]}
            torch.cuda.empty_cache()
    print(json.dumps(found))
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "out_of_memory.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
