"""What a Bayesian training step costs against a plain one: the same network, batch and optimiser, interleaved.

The plain step is what a PyTorch user writes: zero_grad, cross-entropy, backward, fused Adam. Beside it stands the plain
step compiled by the same means as ours. The Bayesian step is what `fit` runs. All take turns in short rounds, so that a
change in the machine's mood hits all; the medians are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from bayesify import networks
from bayesify.likelihoods import Categorical
from bayesify.methods.method import Method
from bayesify.methods.point import PointEstimate
from bayesify.methods.variational import Variational
from bayesify.training.examples import TensorExamples
from bayesify.training.loop import Plan, Trainer

INPUTS, CLASSES = 784, 10


def measure(
    *,
    units: int = 400,
    batch_size: int = 128,
    draws: int = 1,
    prior: str = "scale-mixture:0.75,1,0.000335",
    estimator: str = "weight",
    compiled: bool = True,
    rounds: int = 20,
    steps: int = 10,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Milliseconds per step of both, and their ratio."""
    torch.manual_seed(0)
    x, y = torch.rand(batch_size, INPUTS, device=device), torch.randint(0, CLASSES, (batch_size,), device=device)
    progress("compiling the steps" if compiled else "preparing")
    network = networks.mlp(INPUTS, CLASSES, units=units)
    ours = Variational(network, Categorical(), prior=prior, estimator=estimator)
    bayesian, path = _our_step(ours, x, y, draws, compiled)
    contenders = {"plain": _plain_step(units, x, y), "variational": bayesian}
    if compiled:
        contenders["compiled_plain"] = _our_step(PointEstimate(network, Categorical()), x, y, 1, compiled)[0]
    timings: dict[str, list[float]] = {name: [] for name in contenders}
    for step in contenders.values():
        _time(step, steps, device)
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for name, step in contenders.items():
            timings[name].append(_time(step, steps, device))
    ratios = sorted(v / p for v, p in zip(timings["variational"], timings["plain"], strict=True))
    medians = {name: statistics.median(values) for name, values in timings.items()}
    return {
        "ratio": medians["variational"] / medians["plain"],
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
        "ratio_to_compiled_plain": medians["variational"] / medians["compiled_plain"] if compiled else None,
        **{f"{name}_ms": median for name, median in medians.items()},
        "units": units,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "estimator": estimator,
        "path": path,
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _plain_step(units: int, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    network: nn.Module = networks.mlp(INPUTS, CLASSES, units=units).to(x.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(network(x), y))
        optimizer.step()

    return step


def _our_step(
    method: Method, x: torch.Tensor, y: torch.Tensor, draws: int, compiled: bool
) -> tuple[Callable[[], None], str]:
    method.to(x.device)
    plan = Plan(epochs=1000, batch_size=x.shape[0], draws=draws, compiled=compiled)
    examples = TensorExamples(x, y)
    method._begin(plan, examples)
    trainer = Trainer(method, examples, plan, show=False)
    method.train()
    trainer._fuse([(x, y)], tqdm(disable=True))

    def step() -> None:
        trainer._step([(x, y)], 0, x.shape[0])
        trainer.progress.step += 1

    return step, "compiled" if trainer.plan.compiled else "plain"


def _time(step: Callable[[], None], steps: int, device: str) -> float:
    _wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    _wait(device)
    return (time.perf_counter() - began) / steps * 1e3


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
