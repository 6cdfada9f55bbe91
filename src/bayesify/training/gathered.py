"""Inputs of a prediction from a `Dataset` or a `DataLoader`: all of its items, in order, without their targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler

_AT_ONCE = 256


def gathered(x: Any, parts: int = 1) -> Any:
    """The inputs of a data set or loader; anything else is returned as it is.

    Args:
        x: inputs, or a `Dataset` or `DataLoader` whose items are inputs or pairs of inputs and targets.
        parts: how many tensors an input of the network has: items of as many parts have no target.

    Returns:
        Inputs, `[n, ...]`.

    Raises:
        ValueError: there are no items, or a loader shuffles, so that predictions could not be matched to inputs.

    """
    if not isinstance(x, DataLoader | Dataset):
        return x
    if isinstance(x, DataLoader):
        if x.batch_sampler is not None and not isinstance(x.dataset, IterableDataset):
            sampler = getattr(x.batch_sampler, "sampler", x.sampler)
            if not isinstance(sampler, SequentialSampler):
                raise ValueError("predict needs a loader that keeps the order: set shuffle=False")
        loader = x
    else:
        loader = DataLoader(x, batch_size=_AT_ONCE)
    batches = [_inputs(batch, parts) for batch in loader]
    if not batches:
        raise ValueError("the data set of inputs is empty")
    joined: Any = pytree.tree_map(lambda *leaves: torch.cat([torch.as_tensor(leaf) for leaf in leaves]), *batches)
    return joined


def _inputs(batch: Any, parts: int) -> Any:
    if isinstance(batch, Tensor | Mapping) or not isinstance(batch, tuple | list):
        return batch
    if len(batch) == 2 and parts != 2:
        batch = batch[0]
        return tuple(batch) if isinstance(batch, list) else batch
    return batch[0] if len(batch) == 1 else tuple(batch)
