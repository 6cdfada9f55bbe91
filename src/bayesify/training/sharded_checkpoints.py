"""Checkpoints of a sharded training: each process writes its part, and the first of them the index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bayesify.errors import RunError
from bayesify.runs import checkpoint

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bayesify.distributed.sharding import Shard
    from bayesify.training.trainable import Trainable

_KINDS = ("all", "random", "fixed")


def cut_tensors(method: Trainable, optimizer: Optimizer, tensors: dict[str, Tensor]) -> dict[str, str | None]:
    """The kind of weights that each tensor of a checkpoint is cut by; None where every process has all of it.

    Args:
        method: the method in training.
        optimizer: its optimiser. Moments are cut as their parameter, unless its `slots` say otherwise.
        tensors: of the checkpoint, by name.

    Returns:
        Kinds by name.

    """
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    of_average = [method.sharded.get(name) for name in names.values()]
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of_state = [method.sharded.get(names[id(parameter)]) for parameter in trained]
    slots: dict[str, str] = getattr(optimizer, "slots", {})
    cut: dict[str, str | None] = {}
    for path, tensor in tensors.items():
        group, _, rest = path.partition("/")
        kind: str | None = None
        if group in {"model", "best"}:
            kind = method.sharded.get(rest)
        elif group == "ema":
            kind = of_average[int(rest)]
        elif rest.startswith("state/") and tensor.dim():
            _, number, slot = rest.split("/", 2)
            kind = of_state[int(number)] and slots.get(slot, of_state[int(number)])
        cut[path] = kind
    return cut


def write_in_parts(
    run: Path, shard: Shard, tensors: dict[str, Tensor], cut: dict[str, str | None], state: dict[str, Any]
) -> None:
    """Write the part of this process; the first process also writes what all of them have, and the index.

    Args:
        run: the run folder.
        shard: the part of this process.
        tensors: of the checkpoint, by name.
        cut: the kind of weights of each tensor.
        state: the state of the training.

    """
    group, step = shard.group, state["progress"]["step"]
    name = checkpoint.part_name(group.rank, group.size, step)
    own = {path: tensor for path, tensor in tensors.items() if group.first or cut[path] is not None}
    # A process that cannot write must not leave the others waiting.
    problem: str | None = None
    try:
        checkpoint.write_part(run, name, own)
    except RunError as failure:
        problem = str(failure)
    problems = [text for text in group.values(problem) if text is not None]
    if problems:
        raise RunError(problems[0])
    files = group.values((name, {kind: shard.ranges(kind) for kind in _KINDS}))
    sizes = {kind: shard.limits(kind)[1] - shard.limits(kind)[0] for kind in _KINDS}
    group.done_first(lambda: checkpoint.write_index(run, files, cut, sizes, state))


def read_parts(
    run: Path, method: Trainable, optimizer: Optimizer, shard: Shard
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a checkpoint that this process holds, whether it is in parts or in one file.

    Args:
        run: the run folder.
        method: the method, cut.
        optimizer: its optimiser.
        shard: the part of this process.

    Returns:
        Tensors by name, and the state.

    """
    group = shard.group
    tensors, state = checkpoint.read(run, shard.ranges, slice(group.rank, None, group.size))
    if not checkpoint.is_sharded(run):
        cut = cut_tensors(method, optimizer, tensors)
        for path, kind in cut.items():
            if kind is not None:
                tensors[path] = shard.take(tensors[path], kind)
    return tensors, state
