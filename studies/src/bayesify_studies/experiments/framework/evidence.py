"""The loss per example of a variational network, `E[-log p(y | x, w)] + KL / N`: minus its ELBO over N."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesify.methods import Variational

DRAWS = 20
_AT_ONCE = 2_000


@torch.no_grad()
def loss_per_example(method: Variational, x: Tensor, y: Tensor, draws: int = DRAWS) -> dict[str, float]:
    """The loss with the whole KL, whatever part of it training counted, and its two parts.

    Args:
        method: a trained network.
        x: the examples it was trained on, N of them.
        y: their classes.
        draws: of whole weights, whatever the estimator.

    """
    where, total = method.mu.device, 0.0
    for start in range(0, len(y), _AT_ONCE):
        part, targets = x[start : start + _AT_ONCE].to(where), y[start : start + _AT_ONCE].to(where)
        total -= float(method.likelihood.log_prob(method.draw(part, draws=draws), targets).double().sum())
    nll, kl = total / (draws * len(y)), float(method.kl().double()) / len(y)
    return {"loss": nll + kl, "nll": nll, "kl": kl}


def losses(seeds: list[dict[str, float]]) -> dict[str, Any]:
    """The loss and its parts over seeds, for the numbers of a page."""
    from bayesify.evaluation.seed_statistics import estimate

    return {name: estimate([one[name] for one in seeds]) for name in ("loss", "nll", "kl")}
