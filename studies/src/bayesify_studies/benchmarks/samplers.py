"""What a step of SGLD and of SGHMC costs against a plain one: the same perceptron, batch and path, interleaved.

The plain step is zero_grad, cross-entropy, backward and fused Adam. All take turns in short rounds; the medians are
compared.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from bayesify.likelihoods import Categorical
from bayesify.methods import SGHMC, SGLD
from bayesify.methods.point import PointEstimate
from bayesify_studies.benchmarks import steps as stepping
from bayesify_studies.benchmarks import timing

SAMPLERS = {"sgld": SGLD, "sghmc": SGHMC}


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    compiled: bool = True,
    rounds: int = 60,
    times: int = 3,
    steps: int = 10,
    device: str = "cpu",
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Milliseconds per step of each, and both samplers against the plain steps."""
    x, y = stepping.images(batch_size, device)
    paths: dict[str, str] = {}

    def make() -> timing.Candidates:
        candidates = {"plain": stepping.plain_step(stepping.perceptron(units), x, y)}
        for name, kind in SAMPLERS.items():
            method = kind(stepping.perceptron(units), Categorical(), prior="normal:0.1", chains=1, start="given")
            candidates[name], paths[name] = stepping.training_step(method, x, y, compiled=compiled)
        if compiled:
            point = PointEstimate(stepping.perceptron(units), Categorical())
            candidates["compiled_plain"] = stepping.training_step(point, x, y)[0]
        return candidates

    timings = timing.made_anew(make, times, rounds=rounds, steps=steps, device=device, progress=progress)
    medians = {name: statistics.median(values) for name, values in timings.items()}
    return {
        **{f"{name}_ratio": timing.ratio(timings[name], timings["plain"])["ratio"] for name in SAMPLERS},
        **(
            {f"{name}_ratio_to_compiled_plain": medians[name] / medians["compiled_plain"] for name in SAMPLERS}
            if compiled
            else {}
        ),
        **{f"{name}_ms": median for name, median in medians.items()},
        **{f"{name}_path": path for name, path in paths.items()},
        "units": units,
        "batch_size": batch_size,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    return [
        f"a step of {name.upper()} takes {result[f'{name}_ratio']:.2f} times a plain one "
        f"({result[f'{name}_ms']:.2f} against {result['plain_ms']:.2f} ms, {result[f'{name}_path']})"
        for name in SAMPLERS
    ]
