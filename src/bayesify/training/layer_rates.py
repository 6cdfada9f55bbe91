"""Learning rates by layer, for any optimiser: a step moves each weight by its factor times what the optimiser moves it.

The weights of a network are one vector, so an optimiser's groups cannot tell layers apart. The updates of torch's
optimisers are proportional to the learning rate, so a scaled update is one with a scaled rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bayesify.errors import first_line
from bayesify.functional.selection import select

if TYPE_CHECKING:
    from bayesify.training.trainable import Trainable


class LayerRates:
    """The factors of a method's parameters.

    Args:
        method: the method in training.
        rates: factors by pattern of tensors or modules, or by words of `bayesian=`; later ones replace earlier ones.

    Raises:
        ValueError: a pattern matches nothing, a factor is negative, or the method has no such rates.

    """

    def __init__(self, method: Trainable, rates: Mapping[str, float]) -> None:
        network = method.network
        factors = torch.ones(network.size)
        for pattern, factor in rates.items():
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < float("inf"):
                raise ValueError(f"rates must be factors of at least 0, {pattern!r} has {factor!r}")
            try:
                names = select(network.template, [place.name for place in network.places], [pattern])
            except ValueError as problem:
                raise ValueError(first_line(problem).replace("bayesian ", "rates ")) from None
            for place in network.places:
                if place.name in names:
                    factors[place.start : place.stop] = factor
        self._scaled: list[tuple[nn.Parameter, Tensor]] = []
        for parameter, weights in method.weight_parameters():
            own = torch.ones(parameter.shape[-1])
            own[:weights] = factors[:weights]
            self._scaled.append((parameter, own.to(parameter)))
        if not self._scaled:
            raise ValueError(f"{method.name} has its own update of all weights: leave out rates=")

    def before(self) -> list[Tensor]:
        """The parameters before a step."""
        return [parameter.detach().clone() for parameter, _ in self._scaled]

    @torch.no_grad()
    def scale(self, before: Sequence[Tensor]) -> None:
        """Scale what the step has changed."""
        for (parameter, factors), old in zip(self._scaled, before, strict=True):
            parameter.copy_(torch.lerp(old, parameter, factors.expand_as(old)))
