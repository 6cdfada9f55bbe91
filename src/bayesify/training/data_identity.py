"""Whether data is what a run was trained on: number of examples, number of batches, and a digest of the values.

A run resumes to the same bits only with the same examples in the same order, and a step number gives the position in an
epoch only if the epoch has the same length. Checkpoints therefore hold a mark that identifies the data.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify.errors import RunError
from bayesify.training.batches import Examples, TensorExamples

# Of a tensor with more bytes than this, evenly spaced rows are read: a mark takes a tenth of a second at most.
_BYTES = 1 << 26


def mark(examples: Examples, batch_size: int | None = None) -> dict[str, Any]:
    """What a checkpoint keeps to recognise its data.

    Args:
        examples: the data.
        batch_size: examples per step; None for methods that do not train in batches.

    Returns:
        Number of `examples`, number of `batches`, and a `digest` of the values (None for data not in memory).

    """
    return {
        "examples": examples.n_data,
        "batches": None if batch_size is None else examples.count_batches(batch_size),
        "digest": digest_of(examples.x, examples.y, _BYTES)[:16] if isinstance(examples, TensorExamples) else None,
    }


def check_same(saved: dict[str, Any] | None, examples: Examples, batch_size: int | None, run: Path) -> None:
    """Refuse data other than that of a checkpoint.

    Args:
        saved: the mark in the checkpoint; None for checkpoints of versions that had none.
        examples: the data.
        batch_size: examples per step; None for methods that do not train in batches.
        run: the run folder, for the message.

    Raises:
        RunError: if number, values, order or batches of the examples differ.

    """
    if saved is None:
        return
    current = mark(examples, batch_size)
    advice = "resume needs the same data; use fit to train anew on other data"
    if current["examples"] != saved["examples"]:
        was, now = (f"{data['examples']:,}" for data in (saved, current))
        raise RunError(f"this is not the data of {run}: it was trained on {was} examples, got {now}; {advice}")
    if None not in (saved["digest"], current["digest"]) and current["digest"] != saved["digest"]:
        raise RunError(f"this is not the data of {run}: its examples have other values or another order; {advice}")
    if current["batches"] != saved["batches"]:
        raise RunError(
            f"an epoch of {run} has {saved['batches']:,} batches, this data gives {current['batches']:,}: "
            f"resume needs the same batch size"
        )


def digest_of(x: Any, y: Tensor, at_most: int | None = None) -> str:
    """A SHA-256 of inputs and targets: names, types, shapes and bytes, of evenly spaced rows where there are too many.

    Args:
        x: inputs, `[n, ...]` each.
        y: targets, `[n, ...]`.
        at_most: bytes of a tensor that are read; None reads all.

    Returns:
        64 hexadecimal digits.

    """
    digest = hashlib.sha256()
    # The order of named inputs does not matter.
    inputs = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(x)[0]]
    for name, tensor in [*sorted(inputs, key=lambda named: named[0]), ("targets", y)]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        every = 1 if at_most is None else -(-tensor.numel() * tensor.element_size() // at_most)
        rows = tensor.detach()[:: max(every, 1)].cpu().contiguous()
        digest.update(rows.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
