"""Bootstrap: each network of several trains on examples drawn with replacement (Breiman, "Bagging predictors", 1996).

The drawn examples are a pure function of seed, member and number of examples, so nothing has to be stored to know
which examples a member left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bayesify import noise
from bayesify.training.batches import TensorExamples, to_device

# No epoch has this number, so no order of batches has the same noise.
_STEP = 1 << 30


def resample(seed: int, members: int, examples: int) -> Tensor:
    """The examples of each member, drawn with replacement, `[members, examples]`.

    Args:
        seed: of the draws.
        members: number of networks.
        examples: number of examples.

    """
    keys = torch.cat([noise.keys(seed, noise.Stream.SHUFFLE, member, _STEP) for member in range(members)])
    return (noise.uniform(keys, examples).double() * examples).long().clamp(max=examples - 1)


class ResampledExamples(TensorExamples):
    """Data in memory of which each member sees its own resample, in a new order in every epoch.

    Attributes:
        resample_seed: seed of the resamples; that of the orders where it is None.

    """

    resample_seed: int | None = None

    def orders(self, seed: int, epoch: int, members: int, device: torch.device | None = None) -> Tensor:
        """The order of the drawn examples for each member in an epoch.

        Args:
            seed: seed of the orders.
            epoch: number of the epoch, counted from zero.
            members: networks that are trained.
            device: of the result.

        Returns:
            Numbers of the examples, `[members, n]`.

        """
        every = self.first_member + members
        drawn = resample(seed if self.resample_seed is None else self.resample_seed, every, self.n_data)
        drawn = drawn[self.first_member :]
        places = super().orders(seed, epoch, members, device)
        return drawn.to(places.device).gather(1, places)

    def to(self, device: torch.device) -> TensorExamples:
        moved = ResampledExamples(to_device(self.x, device), self.y.to(device))
        moved.resample_seed, moved.first_member = self.resample_seed, self.first_member
        return moved
