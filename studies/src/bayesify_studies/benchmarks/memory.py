"""Bytes of tensors that training holds, against plain training with Adam: between steps, and at the peak of a step.

    held    every tensor that is alive between two steps: weights, gradients, the optimiser's state, all else
    peak    what is held when a step begins (old gradients are dropped there) + the most that the step adds to it

The batch is the same for both and is not counted. Per weight, plain Adam holds four numbers (weight, gradient, two
moments); a mean-field Gaussian has a mean and a width, two moments each, and whatever else we keep.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

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
    compiled: bool = True,
    device: str = "cpu",
    progress: timing.Progress = timing.silent,
) -> dict[str, Any]:
    """Bytes of both, held and at the peak, and their ratios."""
    for name, value in (("units", units), ("batch_size", batch_size), ("draws", draws)):
        at_least(name, value, 1)
    usable(device)
    x, y = steps.images(batch_size, device)
    path = ""

    def plain() -> steps.Step:
        return steps.plain_step(steps.perceptron(units), x, y)

    def ours() -> steps.Step:
        nonlocal path
        made = steps.variational(units, prior, estimator)
        step, path = steps.training_step(made, x, y, draws=draws, compiled=compiled)
        return step

    progress("plain training")
    under = tensors_of_training(plain, device)
    progress("compiling ours" if compiled else "ours")
    over = tensors_of_training(ours, device)
    weights = sum(parameter.numel() for parameter in steps.perceptron(units).parameters())
    return {
        "ratio": over["held"] / under["held"],
        "peak_ratio": over["peak"] / under["peak"],
        **{f"plain_{name}_bytes": value for name, value in under.items()},
        **{f"variational_{name}_bytes": value for name, value in over.items()},
        "plain_numbers_per_weight": under["held"] / 4 / weights,
        "variational_numbers_per_weight": over["held"] / 4 / weights,
        "weights": weights,
        "units": units,
        "batch_size": batch_size,
        "draws": draws,
        "prior": prior,
        "estimator": estimator,
        "path": path,
        "device": device,
    }


def tensors_of_training(make: Callable[[], steps.Step], device: str = "cpu") -> dict[str, int]:
    """What a training holds between steps and at the peak of one, in bytes; it is thrown away afterwards."""
    before = {key for key, _ in alive()}
    step = make()
    for _ in range(3):
        step()
    gc.collect()
    own = [(key, tensor) for key, tensor in alive() if key not in before]
    held = bytes_of(own)
    gradients = {id(tensor.grad) for _, tensor in own if tensor.is_leaf and tensor.grad is not None}
    # What a GPU counts from has the old gradients in it, as its own allocator does; the profiler has not seen them.
    dropped = [] if device.startswith("cuda") else [(key, tensor) for key, tensor in own if id(tensor) in gradients]
    begin = held - bytes_of(dropped)
    del own, dropped
    return {"held": held, "peak": begin + most_added(step, device)}


def alive() -> Iterator[tuple[tuple[str, int], Tensor]]:
    """Every tensor that Python can reach and that has memory (a compiler's stand-ins have none), with its place."""
    for thing in gc.get_objects():
        if type(thing) in {Tensor, nn.Parameter} and thing.layout == torch.strided and thing.device.type != "meta":
            try:
                memory = thing.untyped_storage()
            except NotImplementedError:  # a batched tensor's: what it stands for is there too
                continue
            if memory.nbytes():
                yield (str(thing.device), memory.data_ptr()), thing


def bytes_of(tensors: Iterable[tuple[tuple[str, int], Tensor]]) -> int:
    """The bytes of their memory, each piece counted once however many tensors see it."""
    return sum({key: tensor.untyped_storage().nbytes() for key, tensor in tensors}.values())


def most_added(step: steps.Step, device: str = "cpu") -> int:
    """The most bytes that are allocated at once during a step over what was there before it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with (
        _quiet(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen,
    ):
        step()
    assert seen.profiler is not None
    # Only the raw records have every allocation and release, in order; the summaries add them up by operator.
    events: Any = seen.profiler.kineto_results.events()
    return highest(event.nbytes() for event in events if event.name() == "[memory]")


def highest(changes: Iterable[int]) -> int:
    """The highest level that a sequence of allocations (positive) and releases (negative) reaches, from zero."""
    level = top = 0
    for change in changes:
        level += change
        top = max(top, level)
    return top


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that the profiler's own library writes to standard error."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    said = [
        (
            f"training holds {result['ratio']:.2f} times the bytes of plain training with Adam, "
            f"{result['peak_ratio']:.2f} times at the peak of a step ({result['path']} path)"
        )
    ]
    for what in ("held", "peak"):
        plain, ours = (result[f"{who}_{what}_bytes"] / 2**20 for who in ("plain", "variational"))
        said.append(f"{what}: plain {plain:.1f} MiB, variational {ours:.1f} MiB")
    return said
