"""A batch that does not fit on a GPU is split: the weights are those of a training with `accumulate=`, on a real card.

    python studies/scripts/out_of_memory.py [--engines plain compiled] [--out FILE] [--device cpu --quick]

For each method and engine a training with the whole card says how much memory it takes. Then a training may have only a
share of that. It must notice, compute its gradients in parts, and end in the weights of a training with the same
`accumulate=` and the whole card; those differ by rounding from the weights of the undivided batch. A compiled step that
does not fit may also go on uncompiled, which takes less memory: then `parts` is 1. Each training has a process of its
own, so that no other one holds memory. With `--device cpu --quick` nothing is limited: it tests this script.
"""

import argparse
import json
import logging
import multiprocessing
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

import bayesify as bf

METHODS = ("point", "variational", "ivon", "mc-dropout")
SHARES = {"plain": (0.75, 0.5), "compiled": (0.75, 0.5, 0.25)}
# Relative to the largest weight: rounding of float32 sums in another order.
MOST = 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=SHARES, default=list(SHARES))
    parser.add_argument("--out", type=Path, help="a file of JSON lines, one for each training, written as they end")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small network")
    options = parser.parse_args()
    wrong = 0
    with ThreadPoolExecutor(len(METHODS)) as pool:
        for engine in options.engines:
            for trials in pool.map(lambda method, engine=engine: list(_trials(method, engine, options)), METHODS):
                for found in trials:
                    wrong += not found["right"]
                    line = json.dumps(found)
                    print(line, flush=True)
                    if options.out is not None:
                        options.out.parent.mkdir(parents=True, exist_ok=True)
                        with options.out.open("a", encoding="utf-8") as stream:
                            stream.write(line + "\n")
    return int(wrong > 0)


def _trials(method, engine, options):
    """The facts of one training for each share of the memory it takes."""
    began = time.monotonic()
    about = {"method": method, "engine": engine, "torch": torch.__version__, "device": _name(options.device)}
    whole = _alone(method, engine, options)
    for share in SHARES[engine]:
        here = about | {"share": share}
        try:
            split = _alone(method, engine, options, limit=int(share * whole["peak"]))
            same = _alone(method, engine, options, accumulate=split["parts"])
        except Exception as problem:  # noqa: BLE001 -- one training must not end the others
            traceback.print_exc(file=sys.stderr)
            yield here | {"error": f"{type(problem).__name__}: {problem!s:.300}", "right": False}
            continue
        to_parts, to_whole = _difference(split, same), _difference(split, whole)
        less = split["parts"] > 1 or engine == "compiled" or options.device != "cuda"
        yield here | {
            "peak_mib": whole["peak"] >> 20,
            "limit_mib": int(share * whole["peak"]) >> 20,
            "taken_mib": split["peak"] >> 20,
            "parts": split["parts"],
            "batch_size": split["batch_size"],
            "difference_to_accumulate": to_parts,
            "difference_to_whole": to_whole,
            "right": to_parts <= MOST and less and split["batch_size"] == whole["batch_size"],
            "seconds": round(time.monotonic() - began, 1),
        }


def _alone(*args, **options):
    """A short training in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_trained, *args, **options).result()


def _trained(method, engine, options, limit=None, accumulate=1):
    """A short training, with at most `limit` bytes of the card for this process; its weights, and the most it took."""
    warnings.simplefilter("ignore")  # two epochs do not make a good fit
    torch.manual_seed(0)
    width, examples, batch = (64, 256, 128) if options.quick else (2048, 65_536, 32_768)
    net = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    x, y = torch.randn(examples, 64, device=options.device), torch.randint(10, (examples,), device=options.device)
    made = bf.methods.METHODS[method](net, "categorical", prior="normal:1").to(options.device)
    if limit is not None and options.device == "cuda":
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    made.fit(
        (x, y), epochs=2, batch_size=batch, optimizer=None if method == "ivon" else "sgd", learning_rate=1e-2,
        accumulate=accumulate, compiled=engine == "compiled", device=options.device, progress=False,
    )  # fmt: skip
    return {
        "weights": nn.utils.parameters_to_vector(list(made.parameters())).detach().cpu().numpy(),
        "peak": torch.cuda.max_memory_reserved() if options.device == "cuda" else 0,
        "parts": made.plan.accumulate,
        "batch_size": made.plan.batch_size,
    }


def _difference(one, other):
    return float(abs(one["weights"] - other["weights"]).max() / abs(other["weights"]).max())


def _name(device):
    return torch.cuda.get_device_name(0) if device == "cuda" else device


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main())
