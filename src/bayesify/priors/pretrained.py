"""The prior of a pretrained network: a normal centred on the weights that the network had when the method was made.

    p(w_i) = N(w_i; g_i, scale^2),    g the given weights

Under N(0, 1), weights that were trained elsewhere may lie where the prior has little density, and variational
inference then pays for them in nats. Centred on them, the KL counts only what fine-tuning changes. The prior depends on
the data that the network was trained on. If these are the data of the fine-tuning too, they count twice, and the result
is not the posterior of a model.

A method stores the given weights with its tensors, so a run loads without the original network.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bayesify.priors.densities import Normal
from bayesify.priors.prior import Number, Scale


@dataclass(frozen=True)
class Pretrained(Normal):
    """A normal prior centred on the given weights g of a network: `p(w_i) = N(w_i; g_i, scale^2)`.

    The means are the weights that the network has when a method is made of it, which needs `start="given"`. They are
    saved with the method. As text: `pretrained:0.03`.

    Args:
        scale: a positive number, `"fan_in"` for 1 / sqrt(fan-in) of each tensor, or a hyperprior.

    Examples:
        >>> tuned = bf.Variational(net, "categorical", prior=bf.priors.Pretrained(0.03))
        >>> given = tuned.network.initial
        >>> tuned.prior.log_density(given) > tuned.prior.log_density(given + 0.01)
        tensor(True)
        >>> tuned.prior.describe("1.weight")
        'pretrained:0.03 (centred on the given weights)'

    """

    name = "pretrained"

    scale: Scale = 0.03
    mean: float = field(default=0.0, init=False, repr=False)

    def _or_defaults(self, scale: Number | None, mean: Number | None) -> tuple[Number, Number]:
        if mean is None:
            raise ValueError(f"{self.text} is centred on the weights of a network: pass the mean")
        return super()._or_defaults(scale, mean)
