"""The constant prediction: what a model that never looks at its inputs can say about the targets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesify.likelihoods.likelihood import Likelihood


def constant_log_prob(likelihood: Likelihood, seen: Tensor, targets: Tensor) -> Tensor | None:
    """The log probability of targets under the best constant prediction for the targets seen in training.

    Classes have their frequencies, counts a Poisson distribution with the mean rate, and numbers a Gaussian with the
    mean and standard deviation of each target dimension.

    Args:
        likelihood: of the model.
        seen: prepared targets of the training data, `[n, ...]`.
        targets: prepared targets `[batch, ...]`.

    Returns:
        One number per example, `[batch]`; None where the targets seen are all the same, or have no such prediction.

    """
    if likelihood.kind == "classification":
        log_prob = _frequencies(seen, targets)
    elif getattr(likelihood, "discrete", False):
        log_prob = _counts(seen.double(), targets.double())
    else:
        log_prob = _gaussian(seen.double(), targets.double())
    return None if log_prob is None else log_prob.reshape(targets.shape[0], -1).sum(1)


def _frequencies(seen: Tensor, targets: Tensor) -> Tensor | None:
    if seen.is_floating_point() and not torch.equal(seen, seen.round()):
        return None
    labels = targets.long()
    if min(int(seen.min()), int(labels.min())) < 0 or int(seen.min()) == int(seen.max()):
        return None
    classes = int(max(seen.max(), labels.max())) + 1
    counts = torch.bincount(seen.long().reshape(-1), minlength=classes).double()
    # A class that training never saw has half an example.
    frequencies = counts.clamp(min=0.5) / counts.sum()
    return frequencies.log()[labels]


def _counts(seen: Tensor, targets: Tensor) -> Tensor | None:
    rate = seen.mean(0)
    if bool((rate <= 0).any()):
        return None
    return targets * rate.log() - rate - torch.lgamma(targets + 1)


def _gaussian(seen: Tensor, targets: Tensor) -> Tensor | None:
    mean, std = seen.mean(0), seen.std(0, correction=0)
    if not bool((std > 0).all()):
        return None
    return -0.5 * ((targets - mean) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)
