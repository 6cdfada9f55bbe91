"""How long a whole fit takes: so many epochs of 60,000 images, by `fit` itself, compiling and all.

Where fewer epochs are run than are asked about, the rest are taken to cost what the later ones did:

    seconds(E) = whole fit of e epochs + (E - e) * (median later epoch + what is spent between epochs)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from bayesify.errors import at_least
from bayesify_studies.benchmarks import steps, timing
from bayesify_studies.benchmarks.machine import usable

ASKED = 600


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    draws: int = 1,
    prior: str = steps.MIXTURE,
    epochs: int | None = None,
    device: str = "cpu",
    n_data: int = steps.N_DATA,
    compiled: bool = True,
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Seconds of the whole fit and of a later epoch, and what 600 epochs take.

    Args:
        units: of each hidden layer.
        batch_size: examples per step.
        draws: weight draws per step.
        prior: over the weights.
        epochs: to run; by default all 600 on a GPU and 4 on a CPU.
        device: where.
        n_data: images.
        compiled: by the compiled step.
        progress: told what is going on.

    """
    usable(device)
    if epochs is None:
        epochs = 4 if device == "cpu" else ASKED
    at_least("epochs", epochs, 2)
    x, y = steps.images(n_data)
    method = steps.variational(units, prior)
    progress(f"fitting {epochs} epochs")
    began = time.perf_counter()
    history = method.fit(
        (x, y), epochs=epochs, batch_size=batch_size, draws=draws, device=device, compiled=compiled, progress=False
    )
    timing.wait_for(device)
    whole = time.perf_counter() - began
    each = history["seconds"]
    later = timing.spread(each[1:])
    return {
        "seconds": whole,
        "epochs": epochs,
        "first_epoch_seconds": each[0],
        "epoch_seconds": later["median"],
        "epoch_seconds_quartiles": later["quartiles"],
        "seconds_of_600_epochs": extended(whole, each, ASKED),
        "measured_whole": epochs >= ASKED,
        "path": "compiled" if method.plan is not None and method.plan.compiled else "plain",
        "units": units,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "images": n_data,
        "device": device,
    }


def extended(whole: float, each: Sequence[float], asked: int) -> float:
    """What `asked` epochs take, from a whole fit and the seconds of each of its epochs (the first one compiles)."""
    between = max(0.0, whole - sum(each)) / len(each)
    return whole + (asked - len(each)) * (statistics.median(each[1:]) + between)


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    return [
        (
            f"{result['epochs']} epochs of {result['images']} images: {result['seconds']:.1f} s, compiling included "
            f"({result['path']} path)"
        ),
        f"a later epoch takes {result['epoch_seconds']:.3f} s; 600 epochs take {result['seconds_of_600_epochs']:.1f} s",
    ]
