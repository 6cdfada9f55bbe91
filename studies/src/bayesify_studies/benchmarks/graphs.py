"""What a Bayesian step costs on a GPU against a plain one where both are compiled and captured in a CUDA graph.

The data are resident, so a step is one replay: fetching its batch, noise, network, gradients and Adam. The eager plain
step, which a PyTorch user writes, stands beside them.
"""

from __future__ import annotations

from typing import Any

from bayesify.errors import at_least
from bayesify_studies.benchmarks import steps, timing
from bayesify_studies.benchmarks.machine import usable


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    draws: int = 1,
    prior: str = steps.MIXTURE,
    estimator: str = "weight",
    rounds: int = 15,
    device: str = "cuda",
    n_data: int = steps.N_DATA,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Microseconds per step of each, and their ratios."""
    for name, value in (("units", units), ("batch_size", batch_size), ("draws", draws), ("rounds", rounds)):
        at_least(name, value, 1)
    if usable(device) == "cpu":
        raise ValueError("graphs are captured on a GPU: use --device cuda, or bench step on a CPU")
    x, y = steps.images(n_data, device)
    progress("compiling and capturing")
    ours = steps.Epochs.of(steps.variational(units, prior, estimator), x, y, batch_size, draws)
    plain = steps.Epochs.of(steps.point(units), x, y, batch_size)
    candidates = {
        "plain": steps.plain_step(steps.perceptron(units), x[:batch_size], y[:batch_size]),
        "graphed_plain": plain.step,
        "variational": ours.step,
    }
    timings = timing.take_turns(candidates, rounds=rounds, steps=100, device=device, progress=progress)
    micro = {name: timing.spread([1e3 * value for value in values]) for name, values in timings.items()}
    found = timing.ratio(timings["variational"], timings["graphed_plain"])
    return {
        "ratio": found["ratio"],
        "ratio_quartiles": found["quartiles"],
        "ratio_to_eager_plain": timing.ratio(timings["variational"], timings["plain"])["ratio"],
        **{f"{name}_us": value["median"] for name, value in micro.items()},
        **{f"{name}_us_quartiles": value["quartiles"] for name, value in micro.items()},
        "units": units,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "estimator": estimator,
        "device": device,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    low, high = result["ratio_quartiles"]
    return [
        (
            f"a graphed variational step takes {result['ratio']:.2f} times a graphed plain one "
            f"(quartiles {low:.2f} to {high:.2f})"
        ),
        (
            f"graphed plain {result['graphed_plain_us']:.0f} us, variational {result['variational_us']:.0f} us, "
            f"eager plain {result['plain_us']:.0f} us"
        ),
    ]
