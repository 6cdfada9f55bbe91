"""Random changes of a batch's inputs in training, such as flips and crops, which a resumed run repeats.

The number of examples N stays that of the data: a changed copy of an image is no new evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesify import noise
from bayesify.errors import first_line
from bayesify.functional.initialisation import seeded_torch
from bayesify.functional.inputs import count, listed
from bayesify.training.batches import Batch


def augmented(batches: list[Batch], augment: Callable[[Any], Any], seed: int, step: int) -> list[Batch]:
    """The batches of a step with changed inputs.

    Args:
        batches: one batch for each member.
        augment: takes the inputs of a batch and returns inputs of the same form; it may use torch's generator.
        seed: of the training.
        step: number of the step; torch's generator starts from both.

    Returns:
        The batches with the same targets.

    Raises:
        ValueError: the function failed, or returned something other than inputs for these examples.

    """
    changed = []
    for member, (x, y) in enumerate(batches):
        with seeded_torch(*noise.key(seed, noise.Stream.AUGMENT, member, step)), torch.no_grad():
            try:
                result = augment(x)
            except Exception as problem:
                raise ValueError(f"augment= failed on a batch of inputs: {first_line(problem)}") from problem
        if _form(result) != _form(x):
            raise ValueError(f"augment= must return inputs of the form it is given, {_form(x)}, got {_form(result)}")
        leaves = pytree.tree_leaves(result)
        if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves) or count(result) != y.shape[0]:
            raise ValueError(f"augment= must return inputs for the {y.shape[0]} examples it is given")
        changed.append((result, y))
    return changed


def _form(x: Any) -> str:
    """What holds the tensors of inputs, in words: a tensor, a tuple of 2, a dict with 'a' and 'b'."""
    if isinstance(x, Mapping):
        return f"a dict with {listed(sorted(x, key=str))}"
    if isinstance(x, list | tuple):
        return f"a tuple of {len(x)}"
    return "a tensor" if isinstance(x, Tensor) else type(x).__name__
