"""What each step depends on besides its batch: its share of the KL, and its learning rate.

Both follow from the plan and the step's number alone, so an epoch's are known before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bayesify.training.kl import KL

# (share of the KL, learning rate, number of the batch) -> what the fused step is given
Numbers = Callable[[float, float, int], tuple[float, ...]]


class StepSchedule:
    """Of one network or of several, each with a weighting of the KL and a learning rate of its own.

    Args:
        networks: each one's weighting and learning rate.
        schedule: what multiplies the learning rates, of the share of training that is done.
        epochs: of the whole training.
        batches: in an epoch.
        batch_size: of all of them but the last, which has what is left of
        n_data: examples.

    """

    def __init__(
        self,
        networks: Sequence[tuple[KL, float]],
        schedule: Callable[[float], float],
        *,
        epochs: int,
        batches: int,
        batch_size: int,
        n_data: int,
    ) -> None:
        self._distinct = list(dict.fromkeys(networks))
        self._own = [self._distinct.index(one) for one in networks]
        self._schedule, self.steps, self.batches, self.n_data = schedule, epochs * batches, batches, n_data
        self.sizes = [min(batch_size, n_data - number * batch_size) for number in range(batches)]

    def factor(self, step: int) -> float:
        """What multiplies the learning rates at a step."""
        return self._schedule(step / self.steps)

    def share(self, step: int, size: int, network: int = 0) -> float:
        """The part of a network's KL that a step on so many examples takes upon itself."""
        return self._share(self._distinct[self._own[network]][0], step, size)

    def table(self, epoch: int, numbers: Numbers, dtype: torch.dtype) -> Tensor:
        """What the steps of an epoch are given, `[batches, networks, numbers]`."""
        rows = []
        for number, size in enumerate(self.sizes):
            step = epoch * self.batches + number
            factor = self.factor(step)
            rows.append([numbers(self._share(kl, step, size), rate * factor, number) for kl, rate in self._distinct])
        return torch.tensor(rows, dtype=dtype)[:, self._own]

    def _share(self, kl: KL, step: int, size: int) -> float:
        return kl.share(step % self.batches, self.batches, size, self.n_data) * kl.factor(step / self.batches)
