"""Going on after a step that failed: from the last good epoch with half the rate, or the same step in more parts.

`on_nan="rollback"`: when the loss or the weights stop being finite, training goes back to the end of the last good
epoch, or to the start where that did not help twice. The learning rate of all later steps is halved. Out of memory: the
gradient of a batch of B examples is computed in twice as many parts (`plain.py`), so that batch size and objective
stay.
"""

from __future__ import annotations

import copy
import gc
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("bayesify")

ON_NAN = ("stop", "rollback")
FACTOR = 0.5
# After this many halvings (a thousandth of the rate) the rate is not what is wrong.
MOST_ROLLBACKS = 10
# How torch says on a CPU and on an accelerator that an allocation failed.
_ALLOCATION = ("defaultcpuallocator", "can't allocate memory", "out of memory", "not enough memory")


class GradientMemoryError(RuntimeError):
    """There was not enough memory for the gradient of a batch; weights and optimiser are as they were before it."""


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint in the memory of the host.

    Args:
        tensors: copies of the tensors, by name.
        state: the rest of the checkpoint.

    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]

    @classmethod
    def of(cls, tensors: dict[str, Tensor], state: dict[str, Any]) -> Snapshot:
        """Copy a checkpoint; what changes later does not change it."""
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        return cls(copies, _copied(state))

    def taken(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors on a device, and the state, to be restored; the snapshot can be taken again."""
        return {name: tensor.to(device, copy=True) for name, tensor in self.tensors.items()}, _copied(self.state)


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error of torch says that an allocation failed, on any device."""
    if isinstance(problem, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(problem, RuntimeError) and any(words in str(problem).lower() for words in _ALLOCATION)


def splits(batch_size: int, parts: int, method: Any) -> bool:
    """Whether the gradient of a batch may be computed in so many parts; says so where it may."""
    if parts > batch_size or getattr(method, "bound", "elbo") != "elbo":
        return False
    logger.warning(
        "not enough memory for the gradient of a batch: it is now computed in %d parts; batch size (%d) and objective "
        "stay, batch normalisation sees the parts",
        parts,
        batch_size,
    )
    return True


def empty_cache(device: torch.device) -> None:
    """Give memory that nothing uses back to an accelerator: what torch keeps for later, and old captured steps."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def rate_factor_after(rollbacks: int) -> float:
    """The factor of the learning rate after so many rollbacks."""
    return float(FACTOR**rollbacks)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    # The records of earlier epochs never change: the list is copied, not what it holds.
    return {**copy.deepcopy({k: v for k, v in state.items() if k != "history"}), "history": list(state["history"])}
