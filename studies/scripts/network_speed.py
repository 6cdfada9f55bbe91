"""Speed and memory of known networks on one GPU: `python studies/scripts/network_speed.py --out FILE.jsonl`.

Every part is measured in a process of its own and written as one line of JSON as soon as it is there, so a part that
fails or a time limit costs nothing else. `--minutes 10` stops in time, `--only eager,resnet18/tf32` measures some
parts, `--list` names them, and `--device cpu --tiny` tries everything out in small.

`--publish FILE.jsonl [FILE.jsonl ...]` takes measurements into docs/results/network-speed.json and writes the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "network-speed.json"
# In the order of their importance.
COMPILED = {
    "resnet18/bfloat16": ("variational", "point", "ivon", "torch.compile", "flipout", "sgld", "sghmc", "ensemble"),
    "bert/bfloat16": ("variational", "point", "torch.compile", "ivon"),
    "resnet50/bfloat16": ("point", "variational", "torch.compile"),
    "vit/bfloat16": ("point", "variational", "torch.compile"),
    "gpt2/bfloat16": ("variational", "point", "torch.compile"),
    "resnet18/tf32": ("variational", "point"),
    "bert/tf32": ("variational", "point"),
    "kept": ("resnet18/variational-kept", "bert/variational-kept"),
}
EAGER = {
    "resnet18/bfloat16": ("plain", "variational", "ivon", "flipout", "sghmc", "ensemble"),
    "resnet18/tf32": ("plain", "variational"),
    "bert/bfloat16": ("plain", "variational", "ivon"),
    "bert/tf32": ("plain", "variational"),
    "resnet50/bfloat16": ("plain", "variational"),
    "vit/bfloat16": ("plain", "variational"),
    "gpt2/bfloat16": ("plain", "variational"),
}


def parts() -> dict[str, list[dict[str, Any]]]:
    """What each part measures, one setting after the other."""
    found: dict[str, list[dict[str, Any]]] = {
        "predict": [{"function": "prediction"}, {"function": "prediction", "precision": "bfloat16"}],
        "laplace": [{"function": "last_layer_laplace", "classes": classes} for classes in (10, 100, 1000)],
    }
    for where, methods in EAGER.items():
        network, precision = where.split("/")
        common = {"network": network, "precision": precision, "compiled": False}
        found[f"eager/{where}"] = [common | {"method": method} for method in methods]
    for where, methods in COMPILED.items():
        for method in methods:
            if where == "kept":
                network, precision, name = method.split("/")[0], "bfloat16", method.split("/")[1]
            else:
                (network, precision), name = where.split("/"), method
            found[f"{where}/{method}"] = [{"network": network, "precision": precision, "method": name}]
    return found


def measure_part(name: str, device: str, tiny: bool, lock: str | None, together: int) -> None:
    """Measure one part in this process, a line of JSON for each setting."""
    from bayesify_studies.benchmarks import machine, network_steps

    if lock is not None:
        network_steps.share_device(lock)
    print(json.dumps({"part": name, "machine": machine.describe(device)}), flush=True)
    for setting in parts()[name]:
        given = dict(setting)
        function = given.pop("function", "measure")
        began = time.perf_counter()
        try:
            result = getattr(network_steps, function)(**given, device=device, tiny=tiny)
        except Exception as problem:  # noqa: BLE001 -- the next setting may work
            traceback.print_exc()
            result = {"failed": f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"}
        line = {
            "part": name,
            **setting,
            **result,
            "together": together,
            "seconds_to_measure": round(time.perf_counter() - began, 1),
        }
        print(json.dumps(line), flush=True)


def run_part(name: str, options: argparse.Namespace, end: float, writing: threading.Lock) -> None:
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
    end, writing = time.perf_counter() + 60 * options.minutes, threading.Lock()
    with ThreadPoolExecutor(max(1, options.together)) as pool:
        list(pool.map(lambda name: run_part(name, options, end, writing), names))


if __name__ == "__main__":
    main()
