"""What a Bayesian training step costs against a plain one: the same network, batch and optimiser, interleaved.

The plain step is what a PyTorch user writes: zero_grad, cross-entropy, backward, fused Adam. Beside it stands the plain
step compiled by the same means as ours. The Bayesian step is what `fit` runs. All take turns in short rounds, so that a
change in the machine's mood hits all; the medians are compared.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import networks
from bayesify.errors import choose
from bayesify.likelihoods import Categorical
from bayesify.methods.point import PointEstimate
from bayesify.methods.variational.variational import Variational
from bayesify_studies.benchmarks import steps as stepping
from bayesify_studies.benchmarks import timing

NETWORKS = ("mlp", "cnn")
COLOUR_IMAGES = (3, 32, 32)


def measure(
    *,
    network: str = "mlp",
    units: int = 400,
    batch_size: int = 128,
    draws: int = 1,
    prior: str = stepping.MIXTURE,
    estimator: str = "weight",
    compiled: bool = True,
    rounds: int = 60,
    times: int = 5,
    steps: int = 10,
    device: str = "cpu",
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Milliseconds per step of each, and ours against the others; `cnn` is study C's, on colour images of 32 x 32.

    Everything is made anew `times` times (`timing.made_anew`).
    """
    choose("network", network, NETWORKS)
    x, y = _batch(network, batch_size, device)
    told: dict[str, Any] = {}

    def make() -> timing.Candidates:
        ours = Variational(_network(network, units), Categorical(), prior=prior, estimator=estimator)
        bayesian, path = stepping.training_step(ours, x, y, draws=draws, compiled=compiled)
        told.update(weights=ours.network.size, path=path)
        candidates = {"plain": stepping.plain_step(_network(network, units), x, y), "variational": bayesian}
        if compiled:
            plain = PointEstimate(_network(network, units), Categorical())
            candidates["compiled_plain"] = stepping.training_step(plain, x, y)[0]
        return candidates

    timings = timing.made_anew(make, times, rounds=rounds, steps=steps, device=device, progress=progress)
    medians = {name: statistics.median(values) for name, values in timings.items()}
    against = timing.ratio(timings["variational"], timings["plain"])
    return {
        "ratio": against["ratio"],
        "ratio_quartiles": against["quartiles"],
        "ratio_to_compiled_plain": medians["variational"] / medians["compiled_plain"] if compiled else None,
        **{f"{name}_ms": median for name, median in medians.items()},
        "network": network,
        **({"units": units} if network == "mlp" else {}),
        **told,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "estimator": estimator,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _network(name: str, units: int) -> nn.Module:
    if name == "mlp":
        return stepping.perceptron(units)
    torch.manual_seed(0)
    return networks.cnn(COLOUR_IMAGES, stepping.CLASSES, preset="study-c")


def _batch(name: str, size: int, device: str) -> tuple[Tensor, Tensor]:
    x, y = stepping.images(size, device)
    if name == "mlp":
        return x, y
    generator = torch.Generator().manual_seed(0)
    return torch.rand(size, *COLOUR_IMAGES, generator=generator).to(device), y
