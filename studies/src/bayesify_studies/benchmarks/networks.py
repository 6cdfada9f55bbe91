"""What a Bayesian step of a known network costs against plain training in the same precision, compiled alike."""

from __future__ import annotations

from typing import Any

from bayesify.errors import choose
from bayesify_studies.benchmarks import network_steps, timing
from bayesify_studies.benchmarks.known_networks import NAMES
from bayesify_studies.benchmarks.machine import usable


def measure(
    *,
    network: str = "resnet18",
    method: str = "variational",
    precision: str = "bfloat16",
    compiled: bool = True,
    batch_size: int | None = None,
    device: str = "cpu",
    tiny: bool = False,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Milliseconds, memory and compile time of a plain step, of one compiled alike, and of ours."""
    choose("network", network, NAMES)
    choose("method", method, network_steps.METHODS)
    choose("precision", precision, tuple(network_steps.PRECISIONS))
    common: dict[str, Any] = {
        "network": network,
        "precision": precision,
        "device": usable(device),
        "tiny": tiny,
        "batch": batch_size,
    }
    rows = {}
    wanted: dict[str, dict[str, Any]] = {"plain": {"method": "plain", "compiled": False}}
    if compiled:
        wanted["compiled_plain"] = {"method": "point"}
    wanted["ours"] = {"method": method, "compiled": compiled}
    for name, settings in wanted.items():
        progress(name.replace("_", " "))
        rows[name] = network_steps.measure(**common, **settings)
    against = rows["compiled_plain" if compiled else "plain"]
    result: dict[str, Any] = {"ratio": rows["ours"]["ms"] / against["ms"], "network": network, "method": method}
    if rows["ours"]["peak_gib"] is not None:
        result["memory_ratio"] = rows["ours"]["peak_gib"] / rows["plain"]["peak_gib"]
    for name, row in rows.items():
        result |= {f"{name}_{what}": row[what] for what in ("ms", "peak_gib", "compile_seconds", "path")}
    return result | {"precision": precision, "device": device, "batch_size": rows["ours"]["batch"]}


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    like = "compiled alike" if "compiled_plain_ms" in result else "eager"
    said = [
        f"a step of {result['network']} by {result['method']} takes {result['ratio']:.2f} times a plain one, {like}"
    ]
    for name in ("plain", "compiled_plain", "ours"):
        if f"{name}_ms" in result:
            memory = result[f"{name}_peak_gib"]
            room = "" if memory is None else f", {memory:.2f} GiB at the peak"
            path = result[f"{name}_path"]
            said.append(f"{name.replace('_', ' ')}: {result[f'{name}_ms']:.2f} ms{room} ({path})")
    return said
