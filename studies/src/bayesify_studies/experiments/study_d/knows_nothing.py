"""The loss of a network that knows nothing: the floor that a trained posterior has to beat.

All means are zero. The widths are one number for the hidden layers and one for the last layer, whichever two of a grid
give the lowest loss per example, `E[-log p(y | x, w)] + KL / N`. A better posterior that knows nothing may exist, so a
network with a higher loss than this certainly has a worse ELBO than one that learned nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from bayesify.methods import Variational
from bayesify_studies.experiments.framework.examples import Pair
from bayesify_studies.experiments.study_d.training import ADAM, Images, network

# From far narrower than any prior of the study to the width of its widest part.
WIDTHS = tuple(10 ** (-n / 4) for n in range(17))
_IMAGES, _DRAWS = 500, 8


def least_loss(data: Images, prior: str, units: int) -> dict[str, Any]:
    """The lowest loss per example over the grid, its two parts, and the widths.

    Args:
        data: the images; N is the number of those to train on.
        prior: of the weights, in its text form.
        units: of each of the two hidden layers.

    """
    return least(network(ADAM, data, prior, units, 0), data.train)


@torch.no_grad()
def least(method: Variational, train: Pair) -> dict[str, Any]:
    """The same of any network, which is changed: one width for its last layer, one for all before it."""
    x, y = (part[:_IMAGES] for part in train)
    method.mu.zero_()
    last = max(place.start for place in method.network.places if place.name.endswith("weight"))
    rho = torch.empty_like(method.rho)
    found = []
    for hidden, outer in itertools.product(WIDTHS, repeat=2):
        rho[:last], rho[last:] = (_before_softplus(width) for width in (hidden, outer))
        method.rho.copy_(rho)
        nll = -float(method.likelihood.log_prob(method.draw(x, draws=_DRAWS), y).double().mean())
        kl = float(method.kl().double()) / len(train[1])
        found.append({"loss": nll + kl, "nll": nll, "kl": kl, "hidden": hidden, "last": outer})
    return min(found, key=lambda one: one["loss"])


def _before_softplus(width: float) -> float:
    return float(torch.tensor(width, dtype=torch.float64).expm1().log())
