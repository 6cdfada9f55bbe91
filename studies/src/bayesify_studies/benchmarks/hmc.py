"""Effective draws per second of our HMC and of NumPyro's NUTS: the same network, data, prior, inputs and cores.

The model is a 2-5-5-2 tanh network with a standard normal prior on 700 moons. What counts are predictions: the
probability of a class on fixed inputs, whose effective sample sizes (ArviZ, bulk) come from one function for both.
Seconds are those of the whole run, warm-up included; with and without compilation. The two take turns, so that a change
in the machine's mood hits both. NumPyro runs in an environment of its own, by `benchmarks/numpyro_nuts.py`; without it,
only ours is measured.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesify import networks
from bayesify.errors import at_least
from bayesify.methods.convergence import effective, r_hat
from bayesify.methods.hmc.hmc import HMC

PEER = "BAYESIFY_NUMPYRO_PYTHON"
WIDTHS = [2, 5, 5, 2]
_SCRIPT = Path(__file__).parents[3] / "scripts" / "numpyro_nuts.py"


def measure(
    *,
    chains: int = 16,
    warm_up: int = 300,
    samples: int = 500,
    peer_chains: int = 2,
    peer_method: str = "parallel",
    peer_warm_up: int = 500,
    peer_samples: int = 500,
    repeats: int = 1,
    compiled: bool = True,
    peer: str | None = None,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Effective draws per second of both, and their ratios.

    Args:
        chains: of ours.
        warm_up: iterations of ours.
        samples: draws of each of our chains.
        peer_chains: NumPyro's; two parallel chains were its best on two cores.
        peer_method: `parallel`, `vectorized` or `sequential`.
        peer_warm_up: its warm-up.
        peer_samples: its draws of each chain.
        repeats: turns of each, with seeds of their own; medians are given.
        compiled: measure our compiled path as well.
        peer: the Python that has NumPyro; by default that of $BAYESIFY_NUMPYRO_PYTHON, or this one if it has it.
        device: ours.
        progress: told what is going on.

    """
    for name, value in (("chains", chains), ("samples", samples), ("repeats", repeats), ("peer_chains", peer_chains)):
        at_least(name, value, 1)
    x, y, inputs = moons()
    python, why_not = find_peer(peer)
    rows: dict[str, list[dict[str, float]]] = {"eager": [], "compiled": [], "numpyro": []}
    for number in range(repeats):
        turn = f"turn {number + 1} of {repeats}"
        progress(f"{turn}: ours, eager")
        rows["eager"].append(_ours(x, y, inputs, chains, warm_up, samples, number, device, compiled=False))
        if compiled:
            progress(f"{turn}: ours, compiled")
            rows["compiled"].append(_ours(x, y, inputs, chains, warm_up, samples, number, device, compiled=True))
        if python is not None:
            progress(f"{turn}: numpyro")
            settings = (peer_chains, peer_method, peer_warm_up, peer_samples)
            rows["numpyro"].append(_peer(python, x, y, inputs, settings, number))
    result: dict[str, Any] = {name: _median(found) for name, found in rows.items()}
    result["compiled"] = result["compiled"] or None
    if python is None:
        result["numpyro"], result["numpyro_skipped"] = None, why_not
    return {
        **_ratios(result),
        **result,
        "model": "2-5-5-2 tanh network, normal:1, 700 moons",
        "ess": f"bulk, of a class's probability on {len(inputs)} fixed inputs",
        "chains": chains,
        "warm_up": warm_up,
        "samples": samples,
        "numpyro_settings": f"{peer_chains} {peer_method} chains, {peer_warm_up} + {peer_samples} iterations",
        "repeats": repeats,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def moons() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """700 moons, standardised, and the inputs to judge on: 50 of them and a grid of 100 points."""
    from sklearn.datasets import make_moons

    points, labels = make_moons(700, noise=0.3, random_state=0)
    x = torch.tensor((points - points.mean(0)) / points.std(0), dtype=torch.float32)
    grid = torch.cartesian_prod(torch.linspace(-3, 3, 10), torch.linspace(-3, 3, 10))
    return x, torch.tensor(labels), torch.cat((x[::14], grid))


def find_peer(given: str | None) -> tuple[str | None, str]:
    """A Python that has NumPyro, or why there is none."""
    python = given or os.environ.get(PEER) or (sys.executable if importlib.util.find_spec("numpyro") else None)
    if python is None:
        return None, f"numpyro is not installed here: make an environment with it and set ${PEER} to its python"
    if not _SCRIPT.exists():
        return None, "benchmarks/numpyro_nuts.py is not part of an installed package: run from a checkout"
    try:
        tried = subprocess.run([python, "-c", "import numpyro"], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as problem:
        return None, f"cannot run {python}: {problem.strerror}"
    if tried.returncode:
        return None, f"{python} has no numpyro: {(tried.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    return python, ""


def _ours(
    x: torch.Tensor,
    y: torch.Tensor,
    inputs: torch.Tensor,
    chains: int,
    warm_up: int,
    samples: int,
    seed: int,
    device: str,
    *,
    compiled: bool,
) -> dict[str, float]:
    network = networks.mlp(2, 2, units=WIDTHS[1:-1], activation="tanh")
    method = HMC(network, "categorical", prior="normal:1", chains=chains)
    settings: dict[str, Any] = {"inputs": inputs, "device": device, "compiled": compiled, "progress": False}
    began = time.perf_counter()
    history = method.fit((x, y), warm_up=warm_up, samples=samples, seed=seed, **settings)
    whole = time.perf_counter() - began
    # The blocks' seconds are iterations alone; compiling comes before the first.
    found = _effective(method.predictions_by_chain().cpu().numpy(), sum(history["seconds"]), whole)
    leapfrogs = history["leapfrogs"][-2] / method.plan.block
    return {**found, "leapfrogs": leapfrogs, "divergences": float(method.store.divergences)}


def _peer(
    python: str,
    x: torch.Tensor,
    y: torch.Tensor,
    inputs: torch.Tensor,
    settings: tuple[int, str, int, int],
    seed: int,
) -> dict[str, float]:
    chains, how, warm_up, samples = settings
    with tempfile.TemporaryDirectory() as folder:
        problem, result = Path(folder) / "problem.npz", Path(folder) / "result.npz"
        np.savez(problem, x=x.numpy(), y=y.numpy(), inputs=inputs.numpy(), widths=np.array(WIDTHS), scale=np.array(1.0))
        command = [python, str(_SCRIPT), str(problem), str(result), "--chains", str(chains), "--method", how]
        command += ["--warm-up", str(warm_up), "--samples", str(samples), "--seed", str(seed)]
        command += ["--threads", str(torch.get_num_threads())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        told = np.load(result)
        found = _effective(told["probs"][..., 1:], float(told["seconds"]), float(told["seconds_with_compilation"]))
        return {**found, "leapfrogs": float(told["leapfrogs"]), "divergences": float(told["divergences"])}


def _effective(predictions: Any, seconds: float, seconds_with_compilation: float) -> dict[str, float]:
    sizes = effective(predictions)
    found = {"ess_min": float(sizes.min()), "ess_median": float(np.median(sizes))}
    found |= {"r_hat": float(r_hat(predictions).max()), "seconds": seconds}
    found["seconds_with_compilation"] = seconds_with_compilation
    for which in ("min", "median"):
        size = found[f"ess_{which}"]
        found[f"ess_{which}_per_second"] = size / seconds
        found[f"ess_{which}_per_second_with_compilation"] = size / seconds_with_compilation
    return found


def _median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]} if rows else {}


def _ratios(result: dict[str, Any]) -> dict[str, float]:
    """Ours over NumPyro's, by the smallest effective size: all that is compiled counted, and none of it."""
    peer, found = result["numpyro"], {}
    if not peer:
        return {}
    for ours in ("eager", "compiled"):
        if result[ours]:
            for suffix in ("", "_with_compilation"):
                name = f"ess_min_per_second{suffix}"
                found[f"ratio_{ours}{suffix}"] = result[ours][name] / peer[name]
    return found
