"""The ELBO of the variational networks whose bands are shown, beside that of one that knows only the targets' mean.

The networks are trained again with the page's settings and seeds; the ratio of their widths is told beside the page's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bayesify.evaluation.seed_statistics import estimate, written
from bayesify.methods import Variational
from bayesify_studies.experiments.framework.additions import Added, Addition
from bayesify_studies.experiments.framework.evidence import loss_per_example, losses
from bayesify_studies.experiments.framework.findings import Table
from bayesify_studies.experiments.framework.work import Work

NAME = "elbo"
# Widths of the weights of a network that knows nothing: one for all layers but the last, one for that.
WIDTHS = tuple(10 ** (-n / 4) for n in range(17))
DRAWS = 200


def least(method: Variational, x: Tensor, y: Tensor) -> dict[str, float]:
    """The lowest loss per example of a network whose mean function is the targets' mean; it is changed."""
    with torch.no_grad():
        method.mu.zero_()
        place = {one.name.rpartition(".")[2]: one for one in method.network.places}["bias"]
        method.mu[place.start : place.stop] = y.mean()
        last = max(one.start for one in method.network.places if one.name.endswith("weight"))
        found = []
        for hidden, outer in itertools.product(WIDTHS, repeat=2):
            rho = torch.full_like(method.rho, _before_softplus(hidden))
            rho[last:] = _before_softplus(outer)
            method.rho.copy_(rho)
            found.append(loss_per_example(method, x, y, DRAWS))
    return min(found, key=lambda one: one["loss"])


def tell(_: Work, found: Mapping[str, Any], numbers: Mapping[str, Any]) -> Added:
    """The loss and its parts over the seeds, beside that of knowing nothing."""
    own, nothing = (losses([part[kind] for part in found.values()]) for kind in ("trained", "nothing"))
    ratio = estimate([part["ratio"] for part in found.values()])
    below = sum(part["trained"]["loss"] < part["nothing"]["loss"] for part in found.values())
    rows = [
        [name, *(written(one[key], ".2f") for key in ("loss", "nll", "kl"))]
        for name, one in (("Variational", own), ("uninformed network", nothing))
    ]
    return Added(
        {"trained": own, "nothing": nothing, "ratio": ratio, "below": below, "seeds": len(found)},
        tables=[
            Table(
                "The ELBO of the variational networks",
                ["network", "loss per example", "of which NLL", "of which KL"],
                rows,
                "The loss is minus the ELBO per training example. An uninformed network predicts the mean of the "
                "targets everywhere; its two widths are the best of a grid. The trained network has the better ELBO "
                f"with {below} of {len(found)} seeds. Trained again for this table, its bands are "
                f"{written(ratio, '.1f')} times as wide away from the data (above: "
                f"{written(numbers['methods']['variational']['ratio'], '.1f')}).",
            )
        ],
    )


def addition(parts: Any) -> Addition:
    """The addition, from a function that makes its parts."""
    return Addition(NAME, parts, tell)


def _before_softplus(width: float) -> float:
    return float(torch.tensor(width, dtype=torch.float64).expm1().log())
