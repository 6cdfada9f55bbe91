"""Everything in docs/results/speed.md, measured and written: `python studies/scripts/speed.py`.

Parts are measured one after the other and saved after each, so that a run that is cut off has lost one part at most and
`--missing` goes on with the rest. On a GPU, from a checkout that is not installed:

    PYTHONPATH=src python3 studies/scripts/speed.py --device cuda --out speed-cuda.json
    python studies/scripts/speed.py --merge speed-cuda.json

`--only step,fleet/ensemble` measures some parts, `--list` names them all, `--quick` tries them in small.

On a CPU a whole process may be slow from its first step to its last, products most of all, as if it had one core and
not two. Training steps are therefore measured in several processes, and the one whose plain steps were fastest counts:
the least disturbed one, whose ratio is usually the least in our favour.
"""

import argparse
import gc
import importlib
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from bayesify_studies.benchmarks import machine
from bayesify_studies.experiments.framework.experiment import commit

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "speed.json"
PRIORS = {"mixture": "scale-mixture:0.75,1,0.000335", "normal": "normal:1"}
CURVES = ("weights", "draws", "batch", "data", "fleet", "prediction")
PRODUCTS = {"tf32": "high", "full": "highest"}
# What the plain candidate of a part took, by the beginning of the part's name; and how many processes measure it.
PLAIN = {"step/": "plain_ms", "fleet/ensemble": "separate_ms"}
PROCESSES = 3
SMALL = {"units": 16, "batch_size": 8, "rounds": 2}


def parts(device: str) -> dict:
    """Every part: the module, the function in it and its settings."""
    found: dict = {}
    on = {"device": device}
    for name, prior in PRIORS.items():
        if device == "cpu":
            found[f"step/{name}"] = ("step", "measure", {"prior": prior})
            found[f"step/1200-{name}"] = ("step", "measure", {"prior": prior, "units": 1200})
            found[f"step/local-{name}"] = ("step", "measure", {"prior": prior, "estimator": "local"})
            found[f"step/cnn-{name}"] = ("step", "measure", {"prior": prior, "network": "cnn"})
        else:
            found[f"graphs/{name}"] = ("graphs", "measure", {"prior": prior})
            found[f"graphs/1200-{name}"] = ("graphs", "measure", {"prior": prior, "units": 1200})
    found["epochs/400"] = ("epochs", "measure", on)
    if device == "cuda":
        found["epochs/1200"] = ("epochs", "measure", on | {"units": 1200, "epochs": 60})
        found["fleet/grid"] = ("fleet", "grid", on)
    found["predict"] = ("predict", "measure", on)
    found["memory"] = ("memory", "measure", on)
    found["samplers"] = ("samplers", "measure", on)
    found["fleet/ensemble"] = ("fleet", "ensemble", on)
    found["fleet/networks"] = ("fleet", "sizes", on)
    found |= {f"scaling/{curve}": ("scaling", "measure", on | {"over": [curve]}) for curve in CURVES}
    found["floor/400"] = ("floor", "measure", on)
    found["floor/1200"] = ("floor", "measure", on | {"units": 1200})
    if device == "cpu":
        for network in ("resnet", "transformer"):
            found[f"prefix/{network}"] = ("shared_prefix", "measure", {"network": network})
        found["waiting/commands"] = ("waiting", "first_output", {})
        found["waiting/fits"] = ("waiting", "estimators", {})
        found["peers"] = ("peers", "measure", {})
        found["serve"] = ("serve", "measure", {})
        found["hmc"] = ("hmc", "measure", {})
    return found


def measure(what: tuple, quick: bool) -> dict:
    """One part's result, or why there is none: whatever goes wrong in one is not fatal to the others."""
    module, function, settings = what
    began = time.perf_counter()
    try:
        run = getattr(importlib.import_module(f"bayesify_studies.benchmarks.{module}"), function)
        known = run.__kwdefaults__ or {}
        settings = settings | {name: value for name, value in SMALL.items() if quick and name in known}
        if quick and "compiled" in known:
            settings["compiled"] = False
        if quick and function == "sizes":
            settings["networks"] = (1, 2)
        if quick and module == "scaling":
            settings["sizes"] = (128, 256) if settings["over"] == ["data"] else (2, 4)
        if quick and module == "epochs":
            settings |= {"epochs": 2, "n_data": 64}
        if "device" not in known:
            settings = {name: value for name, value in settings.items() if name != "device"}
        result = run(**settings, progress=show)
    except Exception as problem:  # noqa: BLE001
        traceback.print_exc()
        result = {"failed": f"{type(problem).__name__}: {' '.join(str(problem).split())[:160]}"}
    gc.collect()
    return result | {"seconds_to_measure": round(time.perf_counter() - began, 1), "commit": commit()}


def least_disturbed(name: str, plain: str) -> dict:
    """A part's result from the process, of several, in which the plain candidate was fastest."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PROCESSES):
            file = Path(folder) / f"{number}.json"
            subprocess.run([sys.executable, __file__, "--only", name, "--once", "--out", str(file)], check=True)
            found.append(read(file)["cpu"]["parts"][name])
    told = [one for one in found if plain in one]
    if not told:
        return found[0]
    ratios = [round(one["ratio"], 4) for one in told]
    return min(told, key=lambda one: one[plain]) | {"ratios_of_all_processes": ratios}


def show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def chosen(names: list, only: str | None) -> list:
    """The parts that were asked for, by name or by the beginning of it."""
    if only is None:
        return names
    asked = [word.strip() for word in only.split(",")]
    for word in asked:
        if not any(name == word or name.startswith(f"{word}/") for name in names):
            raise SystemExit(f"speed.py: there is no part {word!r}; known: {', '.join(names)}")
    return [name for name in names if any(name == word or name.startswith(f"{word}/") for word in asked)]


def read(file: Path) -> dict:
    try:
        return json.loads(file.read_text()) if file.is_file() else {}
    except ValueError as problem:
        raise SystemExit(f"speed.py: {file} is not JSON ({problem}): move it away") from None


def write(file: Path, measured: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(measured, indent=2) + "\n")
    beside.replace(file)


def merged(measured: dict, other: dict) -> dict:
    """Another machine's measurements beside these; of the same device, its parts replace those of the same name."""
    for device, found in other.items():
        if device not in machine.DEVICES or "parts" not in found:
            raise SystemExit(f"speed.py: {device!r} is not a device with parts: give a file that speed.py wrote")
        kept = measured.get(device, {}).get("parts", {})
        measured[device] = {"machine": found["machine"], "parts": kept | found["parts"]}
    return {device: measured[device] for device in machine.DEVICES if device in measured}


def publish(measured: dict, file: Path) -> None:
    """The page and its pictures beside the results."""
    from bayesify_studies.benchmarks import speed_page, speed_pictures

    written = file.with_suffix(".md")
    before = written.read_text() if written.is_file() else ""
    findings = before.partition(speed_page.START)[2].partition(speed_page.END)[0]
    figures = speed_pictures.draw_all(measured, file.parent)
    written.write_text(speed_page.page(measured, findings, figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=machine.DEVICES, default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", help="parts, with commas between")
    parser.add_argument("--missing", action="store_true", help="only parts that the file does not have yet")
    parser.add_argument("--merge", type=Path, help="take the measurements of another machine in, and write the page")
    parser.add_argument(
        "--products", choices=PRODUCTS, default="tf32", help="digits of a GPU's products, for all candidates"
    )
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--once", action="store_true", help="everything in this process, on a CPU too")
    parser.add_argument("--quick", action="store_true", help="in small: to see that everything runs")
    options = parser.parse_args()
    everything = parts(options.device)
    names = chosen(list(everything), options.only)
    if options.list:
        print("\n".join(names))
        return
    measured = read(options.out)
    if options.merge is not None:
        if not options.merge.is_file():
            raise SystemExit(f"speed.py: there is no file {options.merge}")
        measured = merged(measured, read(options.merge))
        write(options.out, measured)
        publish(measured, options.out)
        return
    try:
        machine.usable(options.device)
    except ValueError as problem:
        raise SystemExit(f"speed.py: {problem}") from None
    if options.device == "cuda":
        torch.set_float32_matmul_precision(PRODUCTS[options.products])
    own = measured.setdefault(options.device, {"machine": {}, "parts": {}})
    own["machine"] = machine.describe(options.device)
    for name in names:
        there = own["parts"].get(name)
        if options.missing and there is not None and "failed" not in there:
            continue
        plain = next((key for start, key in PLAIN.items() if name.startswith(start)), None)
        if plain is None or options.device != "cpu" or options.once or options.quick:
            own["parts"][name] = measure(everything[name], options.quick)
        else:
            own["parts"][name] = least_disturbed(name, plain)
        shown = own["parts"][name]
        print(
            f"{name}: {shown.get('failed') or shown.get('ratio', 'done')} ({shown['seconds_to_measure']} s)", flush=True
        )
        write(options.out, measured)
    if options.out.name == RESULTS.name:
        publish(measured, options.out)


if __name__ == "__main__":
    main()
