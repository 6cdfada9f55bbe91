"""A prior for each network of a fleet: one family, its numbers in a tensor, so that one expression serves all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesify.priors.binding import WeightPrior
from bayesify.priors.densities import ScaleMixture, log_mixture
from bayesify.priors.prior import LocationScale, Prior, entropy, subtract


class VaryingPrior(nn.Module):
    """Stands in for a `WeightPrior`, with the numbers that are given to it; under vmap these are each network's own."""

    proper = True

    def __init__(self, family: Prior, numbers: Tensor) -> None:
        super().__init__()
        self.family, self.numbers = family, numbers

    def kl(
        self,
        mean: Tensor,
        std: Tensor,
        draws: Tensor | None = None,
        kept: Tensor | None = None,
        log_scales: Tensor | None = None,
    ) -> Tensor:
        """KL(N(mean, diag(std^2)) || prior) summed over the weights, as `WeightPrior.kl`."""
        *numbers, centre = self.numbers.unbind()
        if isinstance(self.family, ScaleMixture):
            assert draws is not None
            log_density = log_mixture(subtract(draws, centre), *numbers).sum(-1)
            return -entropy(std).sum(-1) - log_density.mean(0)
        (scale,) = numbers
        closed = self.family.closed_kl(mean, std, scale, centre)
        if closed is not None:
            return closed.sum(-1)
        assert draws is not None
        return -entropy(std).sum(-1) - self.family.log_density(draws, scale, centre).sum(-1).mean(0)


def varying(priors: Sequence[WeightPrior]) -> tuple[Prior | None, Tensor]:
    """What the priors of a fleet share, and what tells them apart: a family and `[networks, numbers]`.

    Priors beyond one fixed scale (hyperpriors, name patterns, improper ones) must all be the same: nothing tells them
    apart then, there is no family and no number.
    """
    if not all(_plain(prior) for prior in priors) and len({prior.spec() for prior in priors}) == 1:
        if any(group.stored for prior in priors for group in prior.groups):
            raise ValueError("networks of a fleet cannot start from a posterior: train such ones one by one")
        return None, torch.zeros(len(priors), 0, dtype=torch.float64)
    families, rows = [], []
    for prior in priors:
        own = prior.groups[0].prior
        if not _plain(prior):
            raise ValueError(
                f"networks of a fleet have one proper prior of a fixed scale each, or all the same, got {prior.spec()}"
            )
        families.append(own.name if not hasattr(own, "df") else f"{own.name} with {own.df} degrees of freedom")
        numbers = own.constants if isinstance(own, ScaleMixture) else (own.scale_for(1),)
        rows.append((*numbers, own.mean))
    if len(set(families)) > 1:
        raise ValueError(f"networks of a fleet have priors of one family, got {' and '.join(sorted(set(families)))}")
    return priors[0].groups[0].prior, torch.tensor(rows, dtype=torch.float64)


def _plain(prior: WeightPrior) -> bool:
    groups = prior.groups
    own = groups[0].prior
    single = len(groups) == 1 and len(prior.patterns) == 1 and not groups[0].varying()
    return single and not prior.scale_variables and isinstance(own, LocationScale) and own.scale != "fan_in"
