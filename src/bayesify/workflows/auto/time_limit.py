"""A plan that ends in the time allowed: a few steps are timed first, and what they cost decides how many are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bayesify.methods.auto_table import PLANNED_SHARE, fewest_gradients, sampling_plan
from bayesify.methods.hmc.hmc import HMC
from bayesify.methods.hmc.log_joint import LogJoint
from bayesify.methods.method import Method
from bayesify.priors import WeightPrior
from bayesify.training.batches import Batch, Examples, TensorExamples, join
from bayesify.training.warnings import without_warnings

# A leapfrog step is a gradient and the moves around it.
_STEP_OVER_GRADIENT = 1.3
_TIMED_GRADIENTS, _TIMED_SECONDS = 20, 0.3
_TIMED_BATCHES = 4
_FEWEST_EPOCHS = 5


class TooLittleTimeError(ValueError):
    """The time allowed is too short for a method; the message says for what."""


def sampling_within(method: HMC, examples: TensorExamples, seconds: float) -> dict[str, int]:
    """The plan of sampling that ends within some seconds.

    Args:
        method: untrained.
        examples: all data.
        seconds: left.

    Returns:
        `warm_up`, `samples` and `max_leapfrogs`.

    Raises:
        TooLittleTimeError: too few gradients can be computed.

    """
    assert isinstance(method.prior, WeightPrior)
    began = time.perf_counter()
    device = method.position.device
    target = LogJoint(
        method.network, method.likelihood, method.prior, method.rest, examples.x, examples.y.to(device), method.chains
    )
    position = target.starts(0, method.chains)[0]
    with torch.no_grad():
        target.gradient(position)
        started, count = time.perf_counter(), 0
        while count < _TIMED_GRADIENTS and time.perf_counter() - started < _TIMED_SECONDS:
            target.gradient(position)
            count += 1
        cost = _STEP_OVER_GRADIENT * (time.perf_counter() - started) / count
    left = seconds - (time.perf_counter() - began)
    gradients = PLANNED_SHARE * left / cost
    if gradients < fewest_gradients(method.chains):
        raise TooLittleTimeError(f"{gradients:,.0f} gradients in {seconds:.3g} s are too few to sample")
    return sampling_plan(gradients, few_chains=method.chains <= 4)


def training_within(
    make: Callable[..., Method],
    examples: Examples,
    settings: Mapping[str, Any],
    seconds: float,
    members: int,
    epochs: int,
    device: str | torch.device | None,
) -> dict[str, int]:
    """Epochs, and members of an ensemble, that end within some seconds.

    Args:
        make: makes an untrained method with `members`, where it has any.
        examples: all data.
        settings: of `fit`, without epochs.
        seconds: left.
        members: of an ensemble at most; 1 for other methods.
        epochs: at most.
        device: where to train.

    Returns:
        `epochs` and `members`.

    Raises:
        TooLittleTimeError: one epoch of one network takes longer.

    """
    began = time.perf_counter()
    batch_size = int(settings.get("batch_size", 128))
    batches = examples.count_batches(batch_size)
    few = _few(examples, min(batches, _TIMED_BATCHES) * batch_size)
    timed = few.count_batches(batch_size)
    plan = {name: value for name, value in settings.items() if name not in {"patience", "keep", "checkpoint_every"}}
    with without_warnings():
        history = make(members=members).fit(few, epochs=3, device=device, progress=False, **plan)
    # The first epoch pays for what is set up once.
    epoch = min(record["seconds"] for record in history.records[1:]) / timed * batches
    left = PLANNED_SHARE * (seconds - (time.perf_counter() - began))
    one, affordable = epoch / members, left / epoch
    while members > 1 and affordable < _FEWEST_EPOCHS:
        affordable *= members / (members - 1)
        members -= 1
    if affordable < 1:
        raise TooLittleTimeError(
            f"an epoch of one network takes about {one:.3g} s, and {max(left, 0.0):.3g} s are left for training: allow "
            "more time, or use fewer examples or a smaller network"
        )
    return {"epochs": max(1, min(epochs, int(affordable))), "members": members}


def _few(examples: Examples, rows: int) -> TensorExamples:
    if isinstance(examples, TensorExamples):
        return TensorExamples(*examples.fetch(torch.arange(min(rows, examples.n_data))))
    batches: list[Batch] = []
    for batch in examples.in_order(rows):
        batches.append(batch)
        if sum(len(y) for _, y in batches) >= rows:
            break
    return TensorExamples(*join(batches))
