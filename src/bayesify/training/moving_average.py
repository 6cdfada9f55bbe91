"""An exponential moving average of the weights along training.

    average <- d_t * average + (1 - d_t) * weights,    d_t = min(decay, (1 + t) / (10 + t))

Early steps have a smaller decay, so that the first weights do not weigh on the result of a short training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """The running average of some parameters.

    Args:
        parameters: whose average it is.
        decay: the share of the average that a step keeps.

    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self._values = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the parameters as they are after a step; steps are counted from one."""
        kept = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._values, [parameter.detach() for parameter in self.parameters], 1 - kept)

    @torch.no_grad()
    def store(self) -> None:
        """Give the parameters the values of the average."""
        for parameter, value in zip(self.parameters, self._values, strict=True):
            parameter.copy_(value)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside this context the parameters have the values of the average."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        self.store()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(self.parameters, before, strict=True):
                    parameter.copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """The average, by the number of the parameter, for a checkpoint."""
        return {str(number): value for number, value in enumerate(self._values)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from the average in a checkpoint."""
        for number, value in enumerate(self._values):
            value.copy_(tensors[str(number)])
