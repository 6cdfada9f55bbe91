"""The share of the KL and the learning rate of each step.

Both follow from the plan and the step number alone, so those of an epoch are known before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bayesify.training.kl import KL

# (share of the KL, learning rate, number of the batch) -> the numbers of a fused step
Numbers = Callable[[float, float, int], tuple[float, ...]]


class StepSchedule:
    """Shares of the KL and learning rates of one or several networks, by step.

    Args:
        networks: weighting of the KL and learning rate of each network.
        schedule: factor of the learning rates, a function of the share of training that is done.
        epochs: epochs of the whole training.
        batches: batches in an epoch.
        batch_size: examples in each batch except the last one, which has the rest.
        n_data: examples in the data set.

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
        self._index = [self._distinct.index(network) for network in networks]
        self._schedule, self.steps, self.batches, self.n_data = schedule, epochs * batches, batches, n_data
        self.sizes = [min(batch_size, n_data - number * batch_size) for number in range(batches)]

    def factor(self, step: int) -> float:
        """The factor of the learning rates at a step."""
        return self._schedule(step / self.steps)

    def share(self, step: int, size: int, network: int = 0) -> float:
        """The share of a network's KL in a step on `size` examples, warm-up and temperature included."""
        return self._share(self._distinct[self._index[network]][0], step, size)

    def table(self, epoch: int, numbers: Numbers, dtype: torch.dtype) -> Tensor:
        """The numbers of all steps of an epoch, `[batches, networks, numbers]`.

        Args:
            epoch: number of the epoch, counted from zero.
            numbers: makes the numbers of one step of one network.
            dtype: of the table.

        """
        rows = []
        for number, size in enumerate(self.sizes):
            step = epoch * self.batches + number
            factor = self.factor(step)
            rows.append([numbers(self._share(kl, step, size), rate * factor, number) for kl, rate in self._distinct])
        return torch.tensor(rows, dtype=dtype)[:, self._index]

    def _share(self, kl: KL, step: int, size: int) -> float:
        return kl.share(step % self.batches, self.batches, size, self.n_data) * kl.factor(step / self.batches)
