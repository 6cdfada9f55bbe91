"""One library in a process of its own: says that it is ready, then works a turn whenever it is told to.

    python worker.py torchbnn_step --units 400 --batch-size 128

writes one JSON line, {"ready": ...} or {"skipped": why}, and for every line "STEPS" that it reads one more line with
milliseconds per batch of each of its candidates. The driver is `bayesify_studies.benchmarks.peers`.

A file for a library has PACKAGE and `candidates(widths, x, y, n_data)`, which gives functions that make one training
step each; and BATCHES, which says of a candidate whose call works through several batches how many. They use the
libraries' public names as documented, and torch's fused Adam wherever torch's own Adam is used, as the plain step does.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
import time
import warnings

# Seconds after which a candidate has had its turns: the slowest would take hours over all rounds.
ENOUGH = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--n-data", type=int, default=60_000)
    parser.add_argument("--eager", action="store_true", help="ours without compiling")
    options = parser.parse_args()
    # Libraries print; the driver reads. What is said goes to standard error, and the answers have their own channel.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what: dict) -> None:
        print(json.dumps(what), file=answers, flush=True)

    warnings.simplefilter("ignore")
    try:
        library, turns, versions = prepare(options)
    except Exception as problem:  # noqa: BLE001 -- whatever keeps a library from running is its reason to be skipped
        answer({"skipped": f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"})
        return
    answer({"ready": list(turns), **versions})
    batches, spent = getattr(library, "BATCHES", {}), dict.fromkeys(turns, 0.0)
    for line in sys.stdin:
        told = {}
        for name, step in turns.items():
            if spent[name] > ENOUGH:
                continue
            began = time.perf_counter()
            # A call that works through several batches counts as that many steps.
            own = batches.get(name, 1)
            told[name] = milliseconds(step, max(1, round(int(line) / own))) / own
            spent[name] += time.perf_counter() - began
        answer(told)


def prepare(options: argparse.Namespace):
    import torch

    complete_torchvision()
    library = importlib.import_module(options.name)
    library.COMPILED = not options.eager
    torch.manual_seed(0)
    x, y = torch.rand(options.batch_size, 784), torch.randint(0, 10, (options.batch_size,))
    turns = library.candidates((784, options.units, options.units, 10), x, y, options.n_data)
    for step in turns.values():
        step()
    return (
        library,
        turns,
        {"version": version_of(library.PACKAGE), "torch": torch.__version__, "threads": torch.get_num_threads()},
    )


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a checkout that is on the path and not installed
        return importlib.import_module(package).__version__


def milliseconds(step, calls: int) -> float:
    began = time.perf_counter()
    step()  # wakes the threads and fills the caches after somebody else's turn; a long one does that by itself
    once = time.perf_counter() - began
    if calls == 1 and once > 1:
        return once * 1e3
    began = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - began) / calls * 1e3


def complete_torchvision() -> None:
    """Name the operators of a torchvision whose compiled part does not load beside this torch (CUDA beside CPU).

    Some libraries import it on the way; nothing that is measured here calls it.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        complete_torchvision.kept = library  # a library that is let go takes its names with it


if __name__ == "__main__":
    main()
