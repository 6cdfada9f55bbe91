"""A batch that does not fit on a GPU is split: the weights are those of a training with `accumulate=`, on a real card.

    python studies/scripts/out_of_memory.py [--out FILE] [--device cpu --quick]

For each method and engine a training with the whole card says how much memory it takes. Then this process may have only
a share of that. The training must notice, compute its gradients in parts, and end in the weights of a training with the
same `accumulate=` and the whole card; those differ by rounding from the weights of the undivided batch. With
`--device cpu --quick` nothing is limited: it tests this script.
"""

import argparse
import json
import logging
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch import nn

import bayesify as bf

METHODS = ("point", "variational", "ivon", "mc-dropout")
SHARES = (0.75, 0.5)
# Relative to the largest weight: rounding of float32 sums in another order.
MOST = 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file of JSON lines, one for each training, written as they end")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small network")
    options = parser.parse_args()
    wrong = 0
    for compiled in (False, None):
        for method in METHODS:
            for found in _trials(method, compiled, options):
                wrong += not found["right"]
                line = json.dumps(found)
                print(line, flush=True)
                if options.out is not None:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    with options.out.open("a", encoding="utf-8") as stream:
                        stream.write(line + "\n")
    return int(wrong > 0)


def _trials(method, compiled, options):
    """The facts of one training for each share of the memory it takes."""
    began = time.monotonic()
    about = {"method": method, "compiled": compiled, "torch": torch.__version__, "device": _name(options.device)}
    try:
        whole, peak = _trained(method, compiled, options)
        for share in SHARES:
            split, _ = _trained(method, compiled, options, limit=int(share * peak))
            parts = split.plan.accumulate
            same, _ = _trained(method, compiled, options, accumulate=parts)
            to_parts, to_whole = _difference(split, same), _difference(split, whole)
            fits = options.device == "cuda"
            yield about | {
                "peak_mib": peak >> 20,
                "limit_mib": int(share * peak) >> 20,
                "parts": parts,
                "batch_size": split.plan.batch_size,
                "difference_to_accumulate": to_parts,
                "difference_to_whole": to_whole,
                "right": to_parts <= MOST and (parts > 1 or not fits) and split.plan.batch_size == same.plan.batch_size,
                "seconds": round(time.monotonic() - began, 1),
            }
    except Exception as problem:  # noqa: BLE001 -- one method must not end the others
        traceback.print_exc(file=sys.stderr)
        yield about | {"error": f"{type(problem).__name__}: {problem!s:.300}", "right": False}
    finally:
        _limit(None, options.device)


def _trained(method, compiled, options, limit=None, accumulate=1):
    """A short training, with at most `limit` bytes of the card for this process; and the most it took."""
    torch.manual_seed(0)
    width, examples, batch = (64, 256, 128) if options.quick else (2048, 65_536, 32_768)
    net = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    x, y = torch.randn(examples, 64, device=options.device), torch.randint(10, (examples,), device=options.device)
    made = bf.methods.METHODS[method](net, "categorical", prior="normal:1").to(options.device)
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    _limit(limit, options.device)
    try:
        made.fit(
            (x, y), epochs=2, batch_size=batch, optimizer=None if method == "ivon" else "sgd", learning_rate=1e-2,
            accumulate=accumulate, compiled=compiled, device=options.device, progress=False,
        )  # fmt: skip
    finally:
        _limit(None, options.device)
    peak = torch.cuda.max_memory_reserved() if options.device == "cuda" else 0
    return made.to("cpu"), peak


def _limit(limit, device):
    """How many bytes this process may take of the card; others on the card are not disturbed."""
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else limit / total)


def _difference(one, other):
    weights = [torch.nn.utils.parameters_to_vector(list(method.parameters())).detach() for method in (one, other)]
    return float((weights[0] - weights[1]).abs().max() / weights[1].abs().max())


def _name(device):
    return torch.cuda.get_device_name(0) if device == "cuda" else device


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    warnings.simplefilter("ignore")  # two epochs do not make a good fit
    sys.exit(main())
