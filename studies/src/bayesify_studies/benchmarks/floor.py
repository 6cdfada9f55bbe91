"""Where the limit of the fused step is on a machine: the bytes it must move, the arithmetic it must do, and the time.

With P weights, D draws, a batch of B, layers of n_i inputs and m_i outputs, and float32 (4 bytes), a mean-field step
under Adam is three passes that wait for each other:

    sample    reads mu and rho, writes D sets of weights                        4 P (2 + D) bytes
    network   reads each set forwards, and backwards beyond the first layer, and writes its gradient
                                                                                4 D (3 P - n_1 m_1) bytes
              2 B D (3 sum n_i m_i - n_1 m_1) operations in matrix products (two of three in the first layer)
    update    reads D gradients, mu, rho and four moments, writes the last six  4 P (12 + D) bytes

Noise is computed where it is needed, twice, and never stored; activations (B numbers where a weight matrix has n) are
left out of the bytes. Numbers of elementwise operations are counts of what the formulas need (`OPERATIONS`). The plain
step has no first pass and updates one parameter: 4 P * 7 bytes. A pass takes at least

    max(bytes / bandwidth, products / matrix rate, operations / vector rate)

(the roofline of Williams, Waterman and Patterson 2009), and the floor is the sum over the passes. The three rates are
measured where the step runs: the bandwidth of reading and writing as much memory as the step's state, so that a cache
counts as what it is; the matrix rate of a large square product; the vector rate of a long polynomial.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from bayesify.errors import at_least
from bayesify.training.engines.compiling import compile_function
from bayesify_studies.benchmarks import steps, timing
from bayesify_studies.benchmarks.machine import usable

FLOAT = 4
# A polynomial or rational approximation of exp, log, sin or a division to float32's digits takes about ten
# multiply-adds. Counting too little keeps the floor a floor.
FUNCTION = 20
OPERATIONS = {
    # Two hashes for a pair: three mixes of 11 integer operations and three more; two uniforms of 6; log, root, cosine,
    # sine and four products; all of it halved, as it gives two numbers.
    "noise": (3 * 11 + 3 + 2 * 6 + 4 * FUNCTION + 4) / 2,
    "width": 2 * FUNCTION + 2,  # softplus: an exponential and a logarithm
    "draw": 2,  # mean + width * noise
    "sigmoid": FUNCTION + 2,  # softplus' derivative
    "adam": 2 * FUNCTION + 10,  # two moments, a root, a division
    "normal": 6,  # mu / s^2 and width / s^2 - 1 / width
    "mixture": 2 * FUNCTION + 12,  # the score of two Gaussians by their weights, and 1 / width
}
_POLYNOMIAL = 128


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    draws: int = 1,
    prior: str = steps.MIXTURE,
    rounds: int = 10,
    device: str = "cpu",
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """The machine's rates, the floors of both steps, and how far the measured steps are from them."""
    for name, value in (("units", units), ("batch_size", batch_size), ("draws", draws), ("rounds", rounds)):
        at_least(name, value, 1)
    usable(device)
    widths = (steps.INPUTS, units, units, steps.CLASSES)
    kind = "mixture" if prior.startswith("scale-mixture") else "normal"
    progress("measuring bandwidth and rates")
    state = 6 * FLOAT * weights_of(widths)
    rates = {
        "bandwidth": bandwidth(state, device),
        "bandwidth_of_main_memory": bandwidth(2**29, device),
        "matrix": matrix_rate(4096 if device == "cuda" else 1536, device),
        "vector": vector_rate(device) if compiled else None,
    }
    progress("compiling the steps" if compiled else "preparing the steps")
    candidates = _candidates(units, batch_size, draws, prior, device, compiled)
    timings = timing.take_turns(candidates, rounds=rounds, device=device, progress=progress)
    needs = {
        "variational": bayesian_passes(widths, batch_size, draws, kind),
        "plain": plain_passes(widths, batch_size),
    }
    found = {name: distance(passes, rates, timings[name]) for name, passes in needs.items()}
    return {
        "rates": rates,
        **found,
        "floor_ratio": found["variational"]["floor_ms"] / found["plain"]["floor_ms"],
        "weights": weights_of(widths),
        "state_bytes": state,
        "units": units,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "device": device,
    }


def weights_of(widths: Sequence[int]) -> int:
    """Weights and biases of a perceptron with these widths."""
    return sum((n + 1) * m for n, m in itertools.pairwise(widths))


def bayesian_passes(
    widths: Sequence[int], batch: int, draws: int = 1, prior: str = "mixture"
) -> dict[str, dict[str, float]]:
    """What each pass of a mean-field step under Adam must do: bytes, operations in products, elementwise operations."""
    size, cost = weights_of(widths), OPERATIONS
    network = plain_passes(widths, batch)["network"]
    seen = draws if prior == "mixture" else 1  # a closed-form KL does not look at the draws
    sampling = cost["width"] + draws * (cost["noise"] + cost["draw"])
    updating = cost["width"] + cost["sigmoid"] + draws * (cost["noise"] + 2) + seen * cost[prior] + 2 * cost["adam"]
    return {
        "sample": {"bytes": FLOAT * size * (2 + draws), "products": 0, "operations": size * sampling},
        "network": {name: draws * value for name, value in network.items()},
        "update": {"bytes": FLOAT * size * (12 + draws), "products": 0, "operations": size * updating},
    }


def plain_passes(widths: Sequence[int], batch: int) -> dict[str, dict[str, float]]:
    """The same for a plain step under Adam."""
    size, matrices, first = weights_of(widths), _matrices(widths), widths[0] * widths[1]
    return {
        "network": {
            "bytes": FLOAT * (3 * size - first),
            "products": 2 * batch * (3 * matrices - first),
            "operations": 0,
        },
        "update": {"bytes": FLOAT * size * 7, "products": 0, "operations": size * OPERATIONS["adam"]},
    }


def seconds(need: dict[str, float], rates: dict[str, float | None]) -> float:
    """The least time of one pass: what it needs most of."""
    by = (("bytes", "bandwidth"), ("products", "matrix"), ("operations", "vector"))
    return max(need[what] / rate for what, name in by if (rate := rates[name]))


def distance(
    passes: dict[str, dict[str, float]], rates: dict[str, float | None], measured: Sequence[float]
) -> dict[str, Any]:
    """The floor of a step, pass by pass, and how many times as long the measured step takes."""
    each = {name: 1e3 * seconds(need, rates) for name, need in passes.items()}
    spread = timing.spread(measured)
    return {
        "passes": {name: {**need, "floor_ms": each[name]} for name, need in passes.items()},
        "floor_ms": sum(each.values()),
        "measured_ms": spread["median"],
        "measured_ms_quartiles": spread["quartiles"],
        "times_the_floor": spread["median"] / sum(each.values()),
    }


def bandwidth(size: int, device: str = "cpu", repeats: int = 15) -> float:
    """Bytes a second of a sum of two vectors into a third, all three together of this size; the best of all turns."""
    count = max(1, size // (3 * FLOAT))
    a, b, c = (torch.ones(count, device=device) for _ in range(3))
    return 3 * FLOAT * count / _best(lambda: torch.add(a, b, out=c), device, repeats)


def matrix_rate(size: int, device: str = "cpu", repeats: int = 7) -> float:
    """Operations a second of a square product (a multiply-add is two), the best of all turns."""
    a, b = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    out = torch.empty(size, size, device=device)
    return 2 * size**3 / _best(lambda: torch.mm(a, b, out=out), device, repeats)


def vector_rate(device: str = "cpu", repeats: int = 15) -> float | None:
    """Operations a second of a long polynomial in one compiled pass, or None where nothing can be compiled."""
    count = 2**16 if device == "cpu" else 2**24
    x = torch.rand(count, device=device)

    def polynomial(x: torch.Tensor) -> torch.Tensor:
        total = x
        for number in range(_POLYNOMIAL):
            total = total * x + 1.0 / (number + 1)
        return total

    try:
        run = compile_function(polynomial, (x,))
        run(x)
    except Exception as problem:  # noqa: BLE001 -- no compiler: the elementwise arithmetic is left out of the floor
        del problem
        return None
    return 2 * _POLYNOMIAL * count / _best(lambda: run(x), device, repeats)


def _best(step: steps.Step, device: str, repeats: int) -> float:
    timing.milliseconds_per_call(step, 2, device)
    calls = timing.calls_for(timing.milliseconds_per_call(step, 1, device))
    return min(timing.milliseconds_per_call(step, calls, device) for _ in range(repeats)) / 1e3


def _candidates(
    units: int, batch_size: int, draws: int, prior: str, device: str, compiled: bool
) -> dict[str, steps.Step]:
    ours, plain = steps.variational(units, prior), steps.point(units)
    if device == "cuda":
        data = steps.images(200 * batch_size, device)
        return {
            "variational": steps.Epochs.of(ours, *data, batch_size, draws).step,
            "plain": steps.Epochs.of(plain, *data, batch_size).step,
        }
    data = steps.images(batch_size)
    return {
        "variational": steps.training_step(ours, *data, draws=draws, compiled=compiled)[0],
        "plain": steps.training_step(plain, *data, compiled=compiled)[0],
    }


def _matrices(widths: Sequence[int]) -> int:
    return sum(n * m for n, m in itertools.pairwise(widths))


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    rates = result["rates"]
    said = [
        (
            f"bandwidth {rates['bandwidth'] / 1e9:.0f} GB/s over {result['state_bytes'] / 2**20:.0f} MiB "
            f"({rates['bandwidth_of_main_memory'] / 1e9:.0f} from main memory), "
            f"products {rates['matrix'] / 1e9:.0f} GFLOP/s"
        )
    ]
    if rates["vector"]:
        said[0] += f", elementwise {rates['vector'] / 1e9:.0f} GFLOP/s"
    for name in ("variational", "plain"):
        found = result[name]
        said.append(
            f"{name} step: floor {found['floor_ms']:.3f} ms, measured {found['measured_ms']:.3f} ms, "
            f"{found['times_the_floor']:.1f} times the floor"
        )
    return said
