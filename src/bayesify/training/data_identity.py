"""Whether data is what a run was trained on: as many examples, in as many batches, and in memory the same numbers.

A run goes on to the same bits only with the same examples in the same order, and a step number says where in an epoch
it stopped only if the epoch is as long as it was. Checkpoints therefore hold a mark of the data.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import RunError
from bayesify.training.examples import Examples, TensorExamples

# Beyond this many bytes of a tensor, rows at equal distances stand for all: a mark takes a tenth of a second at most.
_BYTES = 1 << 26


def mark(examples: Examples, batch_size: int | None = None) -> dict[str, Any]:
    """What a checkpoint keeps to know its data again; batches only where training has them."""
    return {
        "examples": examples.n_data,
        "batches": None if batch_size is None else examples.count_batches(batch_size),
        "digest": _digest(examples.x, examples.y) if isinstance(examples, TensorExamples) else None,
    }


def check_same(held: dict[str, Any] | None, examples: Examples, batch_size: int | None, run: Path) -> None:
    """Refuse data other than that of a checkpoint's mark; one without a mark was written before there were any."""
    if held is None:
        return
    found = mark(examples, batch_size)
    advice = "resume needs the same data, fit begins anew with other data"
    if found["examples"] != held["examples"]:
        was, now = (f"{one['examples']:,}" for one in (held, found))
        raise RunError(f"this is not the data of {run}: it was trained on {was} examples, these are {now}; {advice}")
    if None not in (held["digest"], found["digest"]) and found["digest"] != held["digest"]:
        raise RunError(f"this is not the data of {run}: its examples have other values or another order; {advice}")
    if found["batches"] != held["batches"]:
        raise RunError(
            f"an epoch of {run} has {held['batches']:,} batches, with this data it would have {found['batches']:,}: "
            f"resume needs the same batch size"
        )


def _digest(x: Any, y: Tensor) -> str:
    digest = hashlib.sha256()
    # Inputs by name are the same in whatever order they are named.
    inputs = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(x)[0]]
    for name, tensor in [*sorted(inputs, key=lambda part: part[0]), ("targets", y)]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        every = -(-tensor.numel() * tensor.element_size() // _BYTES)
        part = tensor.detach()[:: max(every, 1)].cpu().contiguous()
        digest.update(part.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
