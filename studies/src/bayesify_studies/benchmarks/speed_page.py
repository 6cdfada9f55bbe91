"""The measurements of speed as a page: goals, peers, growth, the floor, and what they were made on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesify_studies.benchmarks.goals import Measured, Verdict, judge
from bayesify_studies.benchmarks.scaling import WORDS

DEVICES = {"cpu": "CPU", "cuda": "GPU"}
START, END = "<!-- findings, written by hand -->", "<!-- end of findings -->"
_TOP = """# Speed

What do Bayesian training and prediction cost, relative to a plain network?
"""
_HOW = """The network is 784-400-400-10, with a batch of 128, one draw and fused Adam unless said otherwise. Candidates
take turns in short rounds. Numbers are medians, with the quartiles over rounds in brackets. Measure again with

    make bench                                                        # on the CPU, with the peers
    python studies/scripts/speed.py --device cuda --out speed-cuda.json    # on a GPU
    python studies/scripts/speed.py --merge speed-cuda.json                # into this page
"""
CAPTIONS = {
    "speed-peers.png": "Time of a training step with each library, relative to a plain step. Less is better.",
    "speed-growth-cpu.png": "How times grow on the CPU. A slope of 1 is linear.",
    "speed-growth-cuda.png": "How times grow on the GPU. A slope of 1 is linear.",
}
_CODE = """The last column is the commit of the code that was measured. `earlier` means code from before commits
were recorded: these numbers are not of the present code.
"""
_PREFIX = """With `bayesian="last_block"` the draws share the passes before their first random weight. K draws of the
last k of L equal blocks need (L - k + K k) / L passes. The table counts in passes of the plain network over the same
8 inputs, with one thread. `work` counts multiplications, and is exact. `time` is the time of `predict`, and `to draw`
is its part that draws the weights, which does not grow with the inputs. Other processes ran on the same cores, so the
times are rough.
"""
_FLOOR = """The floor is the least time that a step can take. For each pass over the weights we count the bytes that
it moves, the operations in matrix products, and the elementwise operations. The machine's rates turn these three
numbers into three times, and the pass takes at least the longest of them. The formulas are in
`studies/src/bayesify_studies/benchmarks/floor.py`. The rates were measured in the same run: memory bandwidth (for an
array as large as the step's state), matrix products, and elementwise arithmetic.
"""


def page(measured: Measured, findings: str = "", figures: Sequence[str] = ()) -> str:
    """The whole page, in Markdown."""
    verdicts = judge(measured)
    said = {name: CAPTIONS.get(name, name) for name in figures}
    first, *others = [f"![{words}]({name})\n\n{words}" for name, words in said.items()] or [""]
    parts = [_TOP, verdict(measured, verdicts), first, _HOW]
    parts += [*(machine_words(DEVICES[device], found["machine"]) for device, found in measured.items())]
    parts.append(f"{START}\n{findings.strip()}\n{END}")
    parts += ["## Goals", _CODE, goals_table(verdicts)]
    cpu = measured.get("cpu", {}).get("parts", {})
    if any(name.startswith("prefix/") for name in cpu):
        parts += ["## Draws of the last block", _PREFIX, prefix_table(cpu)]
    if cpu.get("peers", {}).get("rows"):
        parts += ["## Other libraries", peers_table(cpu["peers"])]
    if any("scaling" in name for found in measured.values() for name in found["parts"]):
        parts += ["## Growth", growth_table(measured)]
    if any(name.startswith("fleet/networks") for found in measured.values() for name in found["parts"]):
        parts += ["## Fleets", fleets_table(measured)]
    if any(name.startswith("floor") for found in measured.values() for name in found["parts"]):
        parts += ["## Where the limit is", _FLOOR, floor_table(measured)]
    parts += [*others, *failures(measured)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def verdict(measured: Measured, verdicts: Sequence[Verdict]) -> str:
    """The answer in bold, with the number of goals that are reached; empty where no step was measured."""
    cpu, cuda = (measured.get(device, {}).get("parts", {}) for device in ("cpu", "cuda"))
    said = []
    if "step/normal" in cpu:
        ratio, cores = cpu["step/normal"]["ratio_to_compiled_plain"], measured["cpu"]["machine"]["cores"]
        said.append(f"{ratio:.2f} times as long on {cores} CPU cores")
    if "graphs/1200-normal" in cuda:
        ratio, gpu = cuda["graphs/1200-normal"]["ratio"], measured["cuda"]["machine"]["gpu"]
        said.append(f"{ratio:.2f} times as long on one {gpu} (1,200 units)")
    judged = [one.reached for one in verdicts if one.reached is not None]
    goals = f"{sum(judged)} of {len(judged)} goals for speed and memory are reached."
    answer = f"Compared with a plain step, a compiled variational step takes {' and '.join(said)}."
    return f"**{answer} {goals}**" if said else ""


def machine_words(name: str, machine: Mapping[str, Any]) -> str:
    """One line on what was measured on."""
    processor = f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, {machine['vectors']}"
    gpu = f"{machine['gpu']} ({machine['gpu_memory_gib']} GiB, CUDA {machine['cuda']}), " if "gpu" in machine else ""
    if machine.get("float32_products", "highest") != "highest":
        gpu += "matrix products of all candidates in TF32, "
    return f"{name}: {gpu}{processor}; torch {machine['torch']}, Python {machine['python']}."


def goals_table(verdicts: Sequence[Verdict]) -> str:
    """What, goal, measured, verdict."""
    rows = []
    for verdict in verdicts:
        goal, unit = verdict.goal, f" {verdict.goal.unit}" if verdict.goal.unit else ""
        measured = "–" if verdict.value is None else f"{number(verdict.value, verdict.quartiles)}{unit}"
        commit = "" if verdict.value is None else verdict.commit or "earlier"
        rows.append([DEVICES[goal.device], goal.what, f"{goal.limit:g}{unit}", measured, verdict.words, commit])
    return table(["", "what", "goal, at most", "measured", "", "code"], rows)


def prefix_table(parts: Mapping[str, Any]) -> str:
    """Passes of predictions whose draws share the first blocks: by formula, by work and by time."""
    rows = [
        [
            result["network"],
            f"{result['draws']} draws of the last {result['random_blocks']} of {result['blocks']}",
            f"{result['passes_expected']:.2f}",
            f"{result['passes_of_work']:.2f}",
            number(result["passes_of_time"], result["passes_of_time_quartiles"]),
            f"{result['passes_of_time_to_draw']:.2f}",
            f"{result['passes_of_time_without_sharing']:.1f}",
            f"{result['largest_difference']:.1g}",
        ]
        for name, result in parts.items()
        if name.startswith("prefix/") and "failed" not in result
    ]
    heading = [
        "network",
        "blocks",
        "passes by formula",
        "work",
        "time",
        "to draw",
        "time without sharing",
        "outputs differ by",
    ]
    return table(heading, rows)


def peers_table(result: Mapping[str, Any]) -> str:
    """Every library's step in plain steps, and in ours."""
    rows = [
        [
            f"{row['library']} {row['version']}",
            row["what"],
            digits(row["ms"]),
            number(row["ratio"], row["ratio_quartiles"]),
            f"{row['to_ours']:.1f}" if "to_ours" in row else "–",
        ]
        for row in result["rows"]
    ]
    heading = ["library", "step of", "ms", "relative to a plain step", "relative to ours"]
    left_out = [f"{name} was left out: {why}." for name, why in result["skipped"].items()]
    plain = f"A plain step took {digits(result['plain_ms'])} ms."
    fits = "A Laplace approximation has no steps. Its row is the time of a fit, divided by the number of batches."
    return "\n\n".join([table(heading, rows), " ".join([plain, fits, *left_out])])


def growth_table(measured: Measured) -> str:
    """The slope of every curve on either device."""
    rows = []
    for device, found in measured.items():
        for part, result in found["parts"].items():
            for name, curve in result.get("curves", {}).items() if part.startswith("scaling") else ():
                first, last = curve["x"][0], curve["x"][-1]
                times = f"{digits(curve['ms'][0])} to {digits(curve['ms'][-1])}"
                verdict = "linear or better" if curve["linear_or_better"] else "worse than linear"
                rows.append(
                    [DEVICES[device], WORDS[name], f"{first:,} to {last:,}", times, f"{curve['slope']:.2f}", verdict]
                )
    return table(["", "what grows with what", "sizes", "ms", "slope (1 is linear)", ""], rows)


def fleets_table(measured: Measured) -> str:
    """Microseconds per network and step by the size of the fleet."""
    rows = []
    for device, found in measured.items():
        for row in found["parts"].get("fleet/networks", {}).get("rows", []):
            rows.append([DEVICES[device], f"{row['networks']}", number(row["us_per_network"], row["quartiles"])])
    return table(["", "variational networks at once", "microseconds per network and step"], rows)


def floor_table(measured: Measured) -> str:
    """Rates, floors and how far the steps are from them."""
    rows = []
    for device, found in measured.items():
        for part, result in found["parts"].items():
            if not part.startswith("floor") or "rates" not in result:
                continue
            rates = result["rates"]
            vector = "–" if not rates["vector"] else f"{rates['vector'] / 1e9:,.0f}"
            for who in ("plain", "variational"):
                step = result[who]
                rows.append(
                    [
                        DEVICES[device],
                        f"{who}, {result['units']} units",
                        f"{sum(each['bytes'] for each in step['passes'].values()) / 1e6:.1f}",
                        f"{sum(each['products'] for each in step['passes'].values()) / 1e6:,.0f}",
                        f"{sum(each['operations'] for each in step['passes'].values()) / 1e6:,.0f}",
                        f"{rates['bandwidth'] / 1e9:,.0f}; {rates['matrix'] / 1e9:,.0f}; {vector}",
                        digits(step["floor_ms"]),
                        digits(step["measured_ms"]),
                        f"{step['times_the_floor']:.1f}",
                    ]
                )
    heading = [
        "",
        "step",
        "MB moved",
        "million operations in products",
        "million elementwise operations",
        "rates: GB/s; GFLOP/s in products; GFLOP/s elementwise",
        "floor, ms",
        "measured, ms",
        "times the floor",
    ]
    return table(heading, rows)


def failures(measured: Measured) -> list[str]:
    """What could not be measured, and why."""
    failed = [
        f"{DEVICES[device]} {part}: {result['failed']}"
        for device, found in measured.items()
        for part, result in found["parts"].items()
        if "failed" in result
    ]
    return ["Not measured: " + "; ".join(failed) + "."] if failed else []


def number(value: float, quartiles: Sequence[float] | None = None) -> str:
    """Three digits, and the quartiles in brackets; a single round has none."""
    if quartiles is None or quartiles[0] == quartiles[1]:
        return digits(value)
    return f"{digits(value)} [{digits(quartiles[0])}, {digits(quartiles[1])}]"


def digits(value: float) -> str:
    """Three digits, without an exponent: 10,500 and not 1.05e+04."""
    short = f"{value:.3g}"
    return f"{float(short):,.0f}" if abs(value) >= 999.5 else short


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
