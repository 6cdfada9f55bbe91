"""Last iterates: the weights that an optimiser passes at the end of training, taken for draws of the posterior.

    draw d = the weights after one of the last `keep` steps

At a constant rate SGD wanders about its minimum, as wide as its rate and its batches are (Mandt, Hoffman and Blei 2017,
"Stochastic gradient descent as approximate Bayesian inference"). A skeleton to copy: `docs/adding-a-method.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.likelihoods import Likelihood
from bayesify.methods import METHODS, Objective, PointEstimate
from bayesify.methods.method import NetworkLike
from bayesify.methods.storage import check_room, shuffled


class LastIterates(PointEstimate):
    """A point estimate that remembers where it has been.

    Args:
        keep: how many of the last steps.
        more: `prior`, `bayesian`, `output`, `start` and `seed`, as for every method.

    """

    name: ClassVar[str] = "last-iterates"
    estimator: ClassVar[str] = "weight"

    def __init__(self, network: NetworkLike, likelihood: Likelihood | str, *, keep: int = 20, **more: Any) -> None:
        at_least("keep", keep, 1)
        super().__init__(network, likelihood, **more)
        check_room(self.name, keep, self.network.size, self.network.dtype, "lower keep=")
        self.keep = keep
        self.kept: Tensor
        self.count: Tensor
        self.register_buffer("kept", self.theta.new_zeros(keep, self.network.size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def settings(self) -> dict[str, Any]:
        return {"keep": self.keep}

    def absorb(self, objective: Objective) -> None:
        super().absorb(objective)
        self.kept[int(self.count) % self.keep] = self.theta.detach()
        self.count += 1

    @property
    def held(self) -> int | None:
        return max(1, min(int(self.count), self.keep))

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        if int(self.count) == 0:
            return super().weights(draws, seed)
        return self.kept[shuffled(self.held or 1, draws, seed, self.kept.device)]

    @property
    def mean_weights(self) -> Tensor:
        return self.kept[: self.held].mean(0) if int(self.count) else super().mean_weights


# For a method of your own, outside the library: `bayesify.load` finds it by its name.
METHODS[LastIterates.name] = LastIterates
