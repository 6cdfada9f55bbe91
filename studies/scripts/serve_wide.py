"""Requests a second of one worker and of two, by wrk: single images, one thread of torch in each worker.

    python studies/scripts/serve_wide.py --data digits --into scale.json

wrk is compiled and takes little of the processors. Its share is printed, and that of other programs. One worker on a
core, one worker on all cores and two workers take turns in rounds. A worker reads and writes requests beside its thread
of torch, so one worker uses more than one core where it has them. The memory is the proportional set size (PSS): a page
that n processes share counts 1/n in each.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from bayesify import files
from bayesify.data import load
from bayesify.workflows.recipe import Recipe
from bayesify.workflows.train import train

LUA = """
local bodies = {{ {bodies} }}
local next = 0
request = function()
  next = next % #bodies + 1
  return wrk.format("POST", "/v2/models/variational/infer", {{["Content-Type"] = "application/json"}}, bodies[next])
end
done = function(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), summary.errors.status, summary.errors.read + summary.errors.write + summary.errors.timeout))
end
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits", choices=("digits", "mnist"))
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--workers", default="1c,1,2", help="numbers of workers; 1c is one worker on one core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--window", help="milliseconds of `serve --window`")
    parser.add_argument("--into", type=Path, help="a JSON file, whose entry `serving.DATA` becomes the result")
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    counts = asked.workers.split(",")
    found = {count: [] for count in counts}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run, script = prepared(folder, asked)
        for _ in range(asked.rounds):
            for count in counts:
                found[count].append(measured(run, script, count, asked))
                print(count, json.dumps(found[count][-1]), flush=True)
    middle = {
        count: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        for count, rounds in found.items()
    }
    settings = {name: value for name, value in vars(asked).items() if name != "into"}
    result = {"settings": settings, "cores": os.cpu_count(), "workers": middle, "rounds": found}
    if len(counts) > 1:
        last = middle[counts[-1]]["per_second"]
        result["ratios"] = {count: last / middle[count]["per_second"] for count in counts[:-1]}
    print(json.dumps({name: value for name, value in result.items() if name != "rounds"}, indent=2))
    if asked.into is not None:
        kept = json.loads(asked.into.read_text(encoding="utf-8")) if asked.into.is_file() else {}
        serving = {**kept.get("serving", {}), asked.data: files.plain(result)}
        files.write_json(asked.into, {**kept, "serving": serving})


def prepared(folder, asked):
    """A trained run, and the requests of wrk for 64 different images."""
    small = asked.data == "digits"
    recipe = Recipe(
        data=asked.data,
        method="variational",
        units=(100,) if small else (400, 400),
        epochs=3 if small else 1,
        normalise="standard" if small else "126",
    )
    run = train(recipe, folder / "variational", progress=False).run
    images = load(asked.data).x_test[:64]
    bodies = []
    for image in images:
        pixels = image.flatten().int().tolist()
        side = round(len(pixels) ** 0.5)
        tensor = {
            "name": "input",
            "shape": [1, side, side],
            "datatype": "UINT8",
            "data": pixels,
        }
        bodies.append(json.dumps({"inputs": [tensor], "parameters": {"draws": asked.draws, "seed": 0}}))
    script = folder / "ask.lua"
    script.write_text(LUA.format(bodies=", ".join(f"[==[{body}]==]" for body in bodies)), encoding="utf-8")
    return run, script


def measured(run, script, workers, asked):
    """One round with a new server."""
    with served(run, workers, asked.draws, asked.window) as (process, address):
        wrk = ["wrk", "-t1", f"-c{asked.connections}", "-s", str(script), "--latency"]
        subprocess.run([*wrk, "-d2s", address], check=True, capture_output=True)
        before, began, spent = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), seconds_of(process)
        busy = seconds_of_everybody()
        told = subprocess.run([*wrk, f"-d{asked.seconds}s", address], check=True, capture_output=True, text=True).stdout
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
        numbers = [int(n) for n in re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", told).groups()]
        of_wrk = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        cores = os.cpu_count() or 1
        counted = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
        total = float(re.search(r'bayesify_predictions_total\{model="variational"\} ([\d.e+]+)', counted)[1])
        of_server = seconds_of(process) - spent
        of_others = seconds_of_everybody() - busy - of_server - of_wrk
        return {
            "per_second": numbers[0] / (numbers[1] / 1e6),
            "p50_ms": numbers[2] / 1e3,
            "p99_ms": numbers[3] / 1e3,
            "refused": numbers[4],
            "broken": numbers[5],
            "share_of_wrk": of_wrk / wall / cores,
            "share_of_server": of_server / wall / cores,
            "share_of_others": of_others / wall / cores,
            "processor_ms_a_request": 1e3 * of_server / numbers[0],
            "counted_by_all_workers": total,
            **{f"pss_{name}_mb": value for name, value in memory(process).items()},
        }


@contextmanager
def served(run, workers, draws, window=None):
    options = [
        "--port",
        "0",
        "--draws",
        str(draws),
        "--no-studio",
        "--json",
        "--workers",
        workers.removesuffix("c"),
        "--threads",
        "1",
    ]
    options += [] if window is None else ["--window", window]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    on_one = ["taskset", "-c", "0"] if workers == "1c" else []
    command = [*on_one, sys.executable, "-m", "bayesify", "serve", str(run), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(timeout=60)


def family(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    return [process.pid, *map(int, children)]


def seconds_of(process):
    """Processor time of the server's processes."""
    ticks = 0
    for number in family(process):
        fields = Path(f"/proc/{number}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def seconds_of_everybody():
    """Processor time of all processes of the machine: it says whether the machine was quiet."""
    user, nice, system, _, _, interrupts, soft, *_ = Path("/proc/stat").read_text(encoding="utf-8").split()[1:]
    return sum(map(int, (user, nice, system, interrupts, soft))) / os.sysconf("SC_CLK_TCK")


def memory(process):
    """Megabytes of all processes together, and of the largest worker alone."""
    sizes = []
    for number in family(process):
        text = Path(f"/proc/{number}/smaps_rollup").read_text(encoding="utf-8")
        sizes.append(int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1]) / 1024)
    return {"all": sum(sizes), "worker": max(sizes[1:] or sizes)}


if __name__ == "__main__":
    main()
