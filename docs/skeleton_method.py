"""Last iterates: the weights that an optimiser visits at the end of training, taken as draws from the posterior.

    draw d = the weights after one of the last `iterates` steps

At a constant rate SGD moves around a minimum; its spread follows from the rate and the batch size (Mandt, Hoffman and
Blei 2017, "Stochastic gradient descent as approximate Bayesian inference"). A skeleton: `docs/adding-a-method.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.errors import at_least
from bayesify.likelihoods import Likelihood
from bayesify.methods import METHODS
from bayesify.methods.method import NetworkLike
from bayesify.methods.objective import Objective
from bayesify.methods.point import PointEstimate
from bayesify.methods.stored_samples import check_room, shuffled


class LastIterates(PointEstimate):
    """A point estimate that stores the weights of its last steps, and predicts with them.

    Args:
        network: an `nn.Module`, or a function without arguments that returns one. The method works on a copy.
        likelihood: a `Likelihood` or its text form, such as `categorical` or `gaussian:0.1`.
        iterates: how many of the last steps are kept.
        **more: `prior`, `bayesian`, `output`, `start` and `seed`, as for `PointEstimate`.

    Examples:
        >>> method = bf.LastIterates(net, "categorical", iterates=10)
        >>> history = method.fit((x, y), epochs=20, optimizer="sgd", learning_rate=0.1, progress=False)
        >>> method.predict(x).outputs.shape  # [iterates, batch, classes]
        torch.Size([10, 60, 3])

    """

    name: ClassVar[str] = "last-iterates"
    estimator: ClassVar[str] = "weight"

    def __init__(self, network: NetworkLike, likelihood: Likelihood | str, *, iterates: int = 20, **more: Any) -> None:
        at_least("iterates", iterates, 1)
        super().__init__(network, likelihood, **more)
        check_room(self.name, iterates, self.network.size, self.network.dtype, "lower iterates=")
        self.iterates = iterates
        self.stored: Tensor
        self.count: Tensor
        self.register_buffer("stored", self.theta.new_zeros(iterates, self.network.size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def settings(self) -> dict[str, Any]:
        """The number of iterates."""
        return {"iterates": self.iterates}

    def absorb(self, objective: Objective) -> None:
        """Store the weights after a step.

        Args:
            objective: what `objective` returned for the step.

        """
        super().absorb(objective)
        self.stored[int(self.count) % self.iterates] = self.theta.detach()
        self.count += 1

    @property
    def held(self) -> int | None:
        """The number of stored iterates."""
        return max(1, min(int(self.count), self.iterates))

    def weights(self, draws: Sequence[int], seed: int) -> Tensor:
        """Stored iterates in a random order under the seed, `[draws, P]`.

        Args:
            draws: the numbers of the draws.
            seed: of the draws.

        """
        if int(self.count) == 0:
            return super().weights(draws, seed)
        return self.stored[shuffled(self.held or 1, draws, seed, self.stored.device)]

    @property
    def mean_weights(self) -> Tensor:
        """The mean of the stored iterates, `[P]`."""
        return self.stored[: self.held].mean(0) if int(self.count) else super().mean_weights


# Outside the library `bayesify.load` finds a method by its name here; inside, by its card: delete this line there.
METHODS[LastIterates.name] = LastIterates
