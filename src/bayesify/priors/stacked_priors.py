"""A prior for each network of a fleet: one family, with scales and means in a tensor, computed in one expression."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesify.priors.binding import WeightPrior
from bayesify.priors.densities import ScaleMixture, log_mixture
from bayesify.priors.prior import LocationScale, Prior, entropy, subtract


class VaryingPrior(nn.Module):
    """Has the interface of a `WeightPrior`, with the family's numbers as a tensor; under vmap, one row per network."""

    proper = True

    def __init__(self, family: Prior, numbers: Tensor) -> None:
        super().__init__()
        self.family, self.numbers = family, numbers
        zero, one = torch.zeros(1), torch.ones(1)
        self.has_closed_kl = family.closed_kl(zero, one, 1.0, 0.0) is not None

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
    """The family that the priors of a fleet share, and the numbers in which they differ, `[networks, numbers]`.

    Other priors than one proper prior of a fixed scale (hyperpriors, name patterns, improper priors) must all be equal.
    There is then no family, and the tensor is `[networks, 0]`.
    """
    if not all(_has_one_fixed_scale(prior) for prior in priors) and len({prior.spec() for prior in priors}) == 1:
        if any(group.stored for prior in priors for group in prior.groups):
            raise ValueError(
                "networks of a fleet cannot have a posterior or their given weights as the prior: train them one by one"
            )
        return None, torch.zeros(len(priors), 0, dtype=torch.float64)
    families, rows = [], []
    for prior in priors:
        density = prior.groups[0].prior
        if not _has_one_fixed_scale(prior):
            raise ValueError(
                f"each network of a fleet needs one proper prior of a fixed scale, or all the same prior, "
                f"got {prior.spec()}"
            )
        name = density.name
        families.append(f"{name} with {density.df} degrees of freedom" if hasattr(density, "df") else name)
        numbers = density.constants if isinstance(density, ScaleMixture) else (density.scale_for(1),)
        rows.append((*numbers, density.mean))
    if len(set(families)) > 1:
        raise ValueError(
            f"all networks of a fleet need priors of one family, got {' and '.join(sorted(set(families)))}"
        )
    return priors[0].groups[0].prior, torch.tensor(rows, dtype=torch.float64)


def _has_one_fixed_scale(prior: WeightPrior) -> bool:
    groups = prior.groups
    density = groups[0].prior
    single = len(groups) == 1 and len(prior.patterns) == 1 and not groups[0].varying()
    return single and not prior.scale_variables and isinstance(density, LocationScale) and density.scale != "fan_in"
