"""Speed and memory of known networks on one GPU: `python studies/scripts/network_speed.py --out FILE.jsonl`.

Every part is measured in a process of its own and written as one line of JSON as soon as it is there, so a part that
fails or a time limit costs nothing else. `--minutes 10` stops in time, `--only eager,resnet18/tf32` measures some
parts, `--list` names them, and `--device cpu --tiny` tries everything out in small.

`--publish FILE.jsonl [FILE.jsonl ...]` takes measurements into docs/results/network-speed.json and writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "network-speed.json"
# In the order of their importance; those that compile longest come early.
COMPILED = (
    "resnet50/bfloat16/variational",
    "resnet50/bfloat16/point",
    "resnet18/bfloat16/flipout",
    "vit/bfloat16/variational",
    "vit/bfloat16/point",
    "bert/bfloat16/variational",
    "resnet18/bfloat16/point",
    "resnet18/bfloat16/ensemble",
    "resnet18/bfloat16/variational",
    "resnet18/bfloat16/torch.compile",
    "bert/bfloat16/point",
    "vit/tf32/variational",
    "vit/tf32/point",
    "resnet18/bfloat16/sgld",
    "resnet18/bfloat16/sghmc",
    "again/resnet18/bfloat16/variational",
    "resnet50/tf32/variational",
    "resnet50/tf32/point",
    "bert/bfloat16/torch.compile",
    "bert/bfloat16/ivon",
    "again/bert/bfloat16/variational",
    "vit/bfloat16/torch.compile",
    "resnet50/bfloat16/torch.compile",
    "gpt2/bfloat16/variational",
    "gpt2/bfloat16/point",
    "resnet18/bfloat16/ivon",
    "resnet18/tf32/variational",
    "resnet18/tf32/point",
    "bert/tf32/variational",
    "bert/tf32/point",
    "gpt2/tf32/variational",
    "gpt2/tf32/point",
    "gpt2/bfloat16/torch.compile",
    "bert/bfloat16/variational-kept",
)
EAGER = {
    "vit/bfloat16": ("plain", "variational"),
    "resnet18/tf32": ("plain", "variational"),
    "bert/bfloat16": ("plain", "variational", "ivon"),
    "resnet18/bfloat16": ("plain", "variational", "ivon", "flipout", "sghmc"),
    "gpt2/bfloat16": ("plain", "variational"),
    "resnet50/bfloat16": ("plain", "variational"),
    "vit/tf32": ("plain", "variational"),
    "bert/tf32": ("plain", "variational"),
}
# Steps that wait for Python are measured on cores where nothing is compiled.
_CORES_TO_MEASURE = 2
_AGAIN = "again/"  # the same in another process, which finds what the first one compiled


def parts() -> dict[str, list[dict[str, Any]]]:
    """What each part measures, one setting after the other."""
    found: dict[str, list[dict[str, Any]]] = {}
    for where, methods in EAGER.items():
        network, precision = where.split("/")
        common = {"network": network, "precision": precision, "compiled": False}
        found[f"eager/{where}"] = [common | {"method": method} for method in methods]
        if len(found) == 2:
            found["predict/bfloat16"] = [{"function": "prediction", "precision": "bfloat16"}]
    found["predict/tf32"] = [{"function": "prediction"}]
    found["laplace"] = [{"function": "last_layer_laplace", "classes": classes} for classes in (10, 100, 1000)]
    for name in COMPILED:
        network, precision, method = name.removeprefix(_AGAIN).split("/")
        setting = {"network": network, "precision": precision, "method": method}
        found[name] = [setting | ({"again": True} if name.startswith(_AGAIN) else {})]
    return found


def measure_part(name: str, device: str, tiny: bool, lock: str | None, together: int) -> None:
    """Measure one part in this process, a line of JSON for each setting."""
    from bayesify_studies.benchmarks import machine, network_steps

    network_steps.warm_up(device)
    if lock is not None:
        network_steps.share_device(lock)
    print(json.dumps({"part": name, "machine": machine.describe(device)}), flush=True)
    for setting in parts()[name]:
        given = {key: value for key, value in setting.items() if key != "again"}
        function = given.pop("function", "measure")
        began = time.perf_counter()
        try:
            result = getattr(network_steps, function)(**given, device=device, tiny=tiny)
        except Exception as problem:  # noqa: BLE001 -- the next setting may work
            traceback.print_exc()
            result = {"failed": f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"}
        network_steps.end_turn()
        line = {
            "part": name,
            **setting,
            **result,
            "together": together,
            "seconds_to_measure": round(time.perf_counter() - began, 1),
        }
        print(json.dumps(line), flush=True)


def run_part(name: str, options: argparse.Namespace, cores: set[int], end: float, writing: threading.Lock) -> None:
    """Measure one part in a process of its own; its lines are written as they come."""
    left = end - time.perf_counter()
    if left < 20:
        print(f"no time left for {name}", flush=True)
        return
    command = [sys.executable, "-u", __file__, "--here", name, "--device", options.device]
    command += ["--lock", f"{options.out}.lock", "--together", str(options.together)] + (
        ["--tiny"] if options.tiny else []
    )
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(options)) as process:
        if cores:
            os.sched_setaffinity(process.pid, cores)
        timer = threading.Timer(min(left, 60 * options.part_minutes), process.kill)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            with writing:
                if line.startswith("{"):
                    with options.out.open("a") as file:
                        file.write(line)
                print(line, end="", flush=True)
        timer.cancel()
    print(f"{name}: {time.perf_counter() - began:.0f} s, exit {process.returncode}", flush=True)


def run_parts(names: list[str], options: argparse.Namespace, end: float) -> None:
    """What is compiled runs in several processes at a time; beside them, the rest runs one by one on its own cores."""
    writing, known = threading.Lock(), sorted(os.sched_getaffinity(0))
    several = options.together > 1 and len(known) > 2 * _CORES_TO_MEASURE
    few, many = (set(known[:_CORES_TO_MEASURE]), set(known[_CORES_TO_MEASURE:])) if several else (set(), set())
    done = {name: threading.Event() for name in names}

    def run(name: str, cores: set[int]) -> None:
        first = done.get(name.removeprefix(_AGAIN))
        if name.startswith(_AGAIN) and first is not None:
            first.wait(max(0.0, end - time.perf_counter()))
        try:
            run_part(name, options, cores, end, writing)
        finally:
            done[name].set()

    compiled = [name for name in names if name in COMPILED]
    others = [name for name in names if name not in COMPILED]
    if not several:
        for name in others + compiled:
            run(name, set())
        return
    alone = threading.Thread(target=lambda: [run(name, few) for name in others])
    alone.start()
    with ThreadPoolExecutor(options.together) as pool:
        list(pool.map(lambda name: run(name, many), compiled))
    alone.join()


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """A cache of their own for the compiled parts, so that only the second time is a second time."""
    cache = str(options.out.with_suffix(".cache").absolute())
    # The compiler starts as many workers as there are cores, in every process.
    return os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "4"}


def main() -> None:
    """Measure the parts, each in a process of its own: while some compile, one measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("network-speed.jsonl"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", help="parts or their beginnings, with commas between")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--part-minutes", type=float, default=6.0)
    parser.add_argument("--together", type=int, default=1, help="processes at a time")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--publish", nargs="+", type=Path, help="write the page from these measurements")
    parser.add_argument("--here", help="measure this part in this process")
    parser.add_argument("--lock", help="file of the process that measures")
    options = parser.parse_args()
    if options.here is not None:
        measure_part(options.here, options.device, options.tiny, options.lock, options.together)
        return
    if options.publish:
        from bayesify_studies.benchmarks import network_page

        network_page.publish(options.publish, RESULTS)
        return
    asked = [word.strip() for word in (options.only or "").split(",") if word.strip()]
    names = [name for name in parts() if not asked or any(name.startswith(word) for word in asked)]
    if not names:
        raise SystemExit(f"network_speed.py: no part begins with {options.only!r}; known: {', '.join(parts())}")
    if options.list:
        print("\n".join(names))
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    run_parts(names, options, time.perf_counter() + 60 * options.minutes)


if __name__ == "__main__":
    main()
