"""Fitting and predicting over several processes: the same data, settings and start everywhere; one that writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesify import runs
from bayesify.distributed import active, alone, joined
from bayesify.distributed.group import Group, digest, local_device
from bayesify.errors import RunError, choose
from bayesify.functional.inputs import count
from bayesify.launch import started_again
from bayesify.methods.cards import OWN_DRAWS, SHARDED, SHARDED_OWN_DRAWS, WAYS_TO_SHARE
from bayesify.runs import checkpoint
from bayesify.training import data_identity
from bayesify.training.batches import TensorExamples, take
from bayesify.training.plan import Plan, resume_plan
from bayesify.training.users_data import LoaderExamples, as_inputs
from bayesify.training.warnings import without_warnings

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting
    from bayesify.methods.prediction import Prediction
    from bayesify.training.batches import Examples

P = ParamSpec("P")
R = TypeVar("R")
# Optimisers of torch whose step of a weight depends on other weights of its tensor.
_NOT_BY_WEIGHT = ("adafactor", "muon")
# What a run that is started again must share with the one in the folder.
_SAME_RUN = (
    "epochs",
    "batch_size",
    "optimizer",
    "schedule",
    "kl",
    "seed",
    "precision",
    "accumulate",
    "clip_norm",
    "on_nan",
)


def over_processes(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a `fit` or `resume`: the processes that `torchrun` started make it together.

    Args:
        function: with keyword arguments `device` and, for `fit`, `distributed`.

    Returns:
        The same function. Warnings are given by the first process alone.

    """

    @functools.wraps(function)
    def together(*args: P.args, **kwargs: P.kwargs) -> R:
        method: Any = args[0]
        wanted: Any = kwargs.get("distributed", True)
        if not isinstance(wanted, bool):
            choose("distributed", wanted, WAYS_TO_SHARE)
        given: Any = kwargs.get("device")
        device = local_device(given) if wanted else given
        if device is not None:
            kwargs["device"] = device
        with joined(_device(device, method), wanted=bool(wanted)) as group:
            if group is None:
                return function(*args, **kwargs)
            group.own_draws = wanted in {OWN_DRAWS, SHARDED_OWN_DRAWS}
            group.sharded = wanted in {SHARDED, SHARDED_OWN_DRAWS}
            if group.own_draws and not method.draws_per_step:
                raise ValueError(
                    f"{method.name} draws no weights in a step: leave out distributed={wanted!r}, which is for "
                    "variational and ivon"
                )
            if group.sharded:
                _check_divisible(method, group)
            with nullcontext() if group.first else without_warnings():
                return function(*args, **kwargs)

    return together


def claimed(run: str | Path | None, *, overwrite: bool) -> Path | None:
    """The folder of a run, claimed by the process that writes; None without one."""
    if run is None:
        return None
    first_only(lambda: runs.claim(Path(run), overwrite=overwrite))
    return Path(run)


def first_only(work: Callable[[], object]) -> None:
    """Do something that writes: in the only process, or in the first one while the others wait."""
    group = active()
    if group is None:
        work()
        return

    def by_itself() -> None:
        with alone():
            work()

    group.done_first(by_itself)


def start_alike(method: Fitting, examples: Examples, plan: Plan | None) -> None:
    """Make sure that all processes train the same thing: same settings, data, starting weights.

    Args:
        method: about to be trained; it gets the weights of the first process.
        examples: its training data.
        plan: the settings; None where nothing is trained.

    Raises:
        TrainingError: settings or data differ.
        ValueError: the method or a setting does not work over several processes.

    """
    group = active()
    if group is None:
        return
    _check_supported(method, plan, group)
    settings = {"method": method.name, "settings": method.settings(), "n_data": examples.n_data}
    settings["plan"] = None if plan is None else asdict(plan)
    group.check_same("settings", repr(settings), "give every process the same arguments")
    if isinstance(examples, TensorExamples):
        mark = data_identity.mark(examples)
        group.check_same("training data", repr(mark), "load the same data everywhere, with the same seed")
    if isinstance(examples, LoaderExamples):
        # Loaders that shuffle without a generator of their own take torch's.
        torch.set_rng_state(torch.tensor(group.first_value(torch.get_rng_state().tolist()), dtype=torch.uint8))
    group.start_alike([*method.parameters(), *method.buffers()])


def goes_on(run: str | Path | None, plan: Plan) -> bool:
    """Whether the processes were started again, and the folder has a checkpoint of the same training."""
    group = active()
    if run is None or group is None or not started_again():
        return False

    def found() -> bool:
        try:
            known, _, _ = resume_plan(Path(run), tensors=False)
        except RunError:
            return False
        return all(getattr(known, name) == getattr(plan, name) for name in _SAME_RUN)

    return group.first_value(found() if group.first else False)


def predicted_together(
    method: Prediction, x: Any, settings: Sequence[Any], predict: Callable[[Any], Tensor], *, wanted: bool
) -> Tensor:
    """Outputs `[draws, batch, ...]` at inputs, a part of which each process computes.

    Processes that have other inputs, settings or weights than the first each compute their own.

    Args:
        method: the method that predicts.
        x: inputs.
        settings: what the outputs depend on besides.
        predict: the outputs at some of the inputs.
        wanted: False computes all in this process.

    Returns:
        The outputs at all inputs, in every process.

    """
    with joined(method.network.device, wanted=wanted) as group:
        if group is None:
            return predict(x)
        x = as_inputs(x, method.network.dtype, columns=method.column_names)
        tensors = [
            *pytree.tree_leaves(x),
            *(value for value in method.state_dict().values() if isinstance(value, Tensor)),
        ]
        marks = group.values((count(x), digest(tensors), *settings))
        if any(mark != marks[0] for mark in marks):
            with alone():
                return predict(x)
        total = count(x)
        first, size = group.slice(total)
        first, rows = min(first, total - 1), max(size, 1)
        with alone():
            part = predict(take(x, slice(first, first + rows)))
        return group.rows(part.narrow(1, 0, size), total, axis=1)


def in_parts(method: Fitting, plan: Plan) -> Group | None:
    """The processes, where each of them is to hold a part of a method; None where each holds all of it.

    Args:
        method: about to be trained.
        plan: the settings.

    Raises:
        ValueError: the method or a setting does not allow it.

    """
    group = active()
    if group is None or not group.sharded:
        return None
    check_sharded(method, plan, group)
    return group


def as_the_run(run: Path, wanted: bool | str) -> None:
    """Go on in parts with a run that was trained in parts, unless the caller says how.

    Args:
        run: the run folder.
        wanted: `distributed`, as it was given.

    """
    group = active()
    if group is None or not isinstance(wanted, bool):
        return
    known = group.first_value(checkpoint.read_state(run).get("sharded") if group.first else None)
    group.sharded, group.own_draws = known is not None, bool(known and known["own_draws"])


def check_sharded(method: Fitting, plan: Plan, group: Group) -> None:
    """Refuse to divide a method among processes where it cannot be.

    Args:
        method: about to be trained.
        plan: the settings.
        group: the processes.

    Raises:
        ValueError: with the reason.

    """
    _check_divisible(method, group)
    for name in ("rates", "recompute"):
        if getattr(plan, name):
            raise ValueError(f"{name}= does not work with distributed={SHARDED!r}: leave it out")
    if plan.optimizer.partition(":")[0] in _NOT_BY_WEIGHT:
        raise ValueError(
            f"the steps of {plan.optimizer} depend on more than one weight, which other processes hold: use adam"
        )


def _check_divisible(method: Fitting, group: Group) -> None:
    reason = method.why_not_sharded(own_draws=group.own_draws)
    if reason is not None:
        raise ValueError(f"{method.name} cannot be sharded: {reason}, or leave out distributed={SHARDED!r}")


def _check_supported(method: Fitting, plan: Plan | None, group: Group) -> None:
    if getattr(method, "bound", "elbo") == "importance_weighted":
        raise ValueError(
            "bound='importance_weighted' is not a sum over examples, which several processes could share: use "
            "bound='elbo', or distributed=False"
        )
    if plan is not None and plan.recompute and group.device.type == "cuda":
        raise ValueError("recompute= does not work over several processes on CUDA: leave it out")
    if any(isinstance(layer, nn.SyncBatchNorm) for layer in method.network.template.modules()):
        raise ValueError(
            "the network has SyncBatchNorm: use plain BatchNorm, whose statistics cover the batch of all processes here"
        )


def _device(device: torch.device | str | None, method: nn.Module) -> torch.device:
    if device is not None:
        try:
            return torch.device(device)
        except RuntimeError:  # `fit` explains it
            return torch.device("cpu")
    return next(method.parameters()).device
