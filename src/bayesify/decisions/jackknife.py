"""Jackknife+-after-bootstrap: intervals from an ensemble whose members left out some training examples each.

For training example `i`, let `f_i(x)` be the mean of the members that did not train on it, `R_i = |y_i - f_i(x_i)|`.
The interval at x goes from the `floor(alpha (n + 1))`-th smallest of `f_i(x) - R_i` to the
`ceil((1 - alpha)(n + 1))`-th smallest of `f_i(x) + R_i`. It contains the target with a probability of at least
`1 - 2 alpha`, and usually about `1 - alpha` (Kim, Xu and Barber, "Predictive inference is free with the
jackknife+-after-bootstrap", 2020, arXiv:2002.09025; exact for a random number of members, as there).
An example that every member trained on has no `f_i`: it counts as an infinite residual, which keeps the guarantee.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesify.decisions.provenance import CalibrationData, one_target
from bayesify.likelihoods import Regression
from bayesify.methods.ensemble import Ensemble
from bayesify.predictive import Predictive
from bayesify.training.resampling import resample

# Numbers in memory at once.
_ELEMENTS = 1 << 24


def left_out(seed: int, members: int, examples: int) -> Tensor:
    """Which examples each member did not train on, `[members, examples]` bool."""
    drawn = torch.zeros(members, examples, dtype=torch.bool)
    return ~drawn.scatter_(1, resample(seed, members, examples), value=True)


def residuals(training: CalibrationData, alpha: float) -> tuple[int, list[float]]:
    """The seed of the resampling and the residual of each training example, NaN replaced by a huge number.

    Args:
        training: the data that the ensemble was fitted on, in its order.
        alpha: the share of targets that may be missed.

    Raises:
        ValueError: the method is no bootstrapped ensemble, has too few members, or was trained on other data.

    """
    method = training.method
    if not isinstance(method, Ensemble) or not method.bootstrap:
        raise ValueError("jackknife+ needs an ensemble that was made with Ensemble(..., bootstrap=True)")
    seed = method.check_training_data(training.x, training.y)
    outside = left_out(seed, method.members, len(training.y))
    never = int((~outside.any(0)).sum())
    room = math.floor(alpha * (len(training.y) + 1)) - 1
    if never > room:
        # A row is in every resample with probability (1 - 1/e)^members.
        needed = math.ceil(math.log(alpha / 2) / math.log(1 - math.exp(-1)))
        raise ValueError(
            f"{never:,} of {len(training.y):,} training examples were left out by no member, and at most "
            f"{max(room, 0):,} may be: use about {max(needed, method.members + 1)} members"
        )
    values = []
    done = 0
    for given, numbers in training.predictives():
        part, targets = (given, numbers) if given.of_logs is None else (given.of_logs, numbers.log())
        means = member_means(part)
        rows = outside[:, done : done + len(part)].to(means)
        alone = (means * rows).sum(0) / rows.sum(0)
        values.append((one_target(targets, len(alone)).double() - alone).abs())
        done += len(part)
    # JSON has no infinity: the largest float stands for it.
    return seed, torch.cat(values).nan_to_num(nan=_FAR, posinf=_FAR).tolist()


_FAR = torch.finfo(torch.float64).max / 4


def member_means(predictive: Predictive) -> Tensor:
    """The prediction of each member, `[members, n]`."""
    likelihood = predictive.likelihood
    assert isinstance(likelihood, Regression)
    means = likelihood.mean(predictive.outputs.double())
    return means.reshape(len(means), -1)


def interval(means: Tensor, outside: Tensor, residual: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Lower and upper ends, `[n]` each.

    Args:
        means: predictions of each member, `[members, n]`.
        outside: which training examples each member left out, `[members, examples]`.
        residual: leave-one-out residual of each training example, `[examples]`.
        alpha: the share of targets that may be missed.

    """
    examples = outside.shape[1]
    weights = outside.double().to(means)
    weights = weights / weights.sum(0).clamp(min=1.0)
    low = max(1, math.floor(alpha * (examples + 1) + 1e-9))
    high = min(examples, math.ceil((1 - alpha) * (examples + 1) - 1e-9))
    residual = residual.to(means)[:, None]
    ends = []
    for part in means.split(max(1, _ELEMENTS // examples), 1):
        alone = weights.T @ part
        ends.append(((alone - residual).kthvalue(low, 0).values, (alone + residual).kthvalue(high, 0).values))
    lower, upper = (torch.cat(parts) for parts in zip(*ends, strict=True))
    return lower, upper
