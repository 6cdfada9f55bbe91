"""Scores of predicted numbers and of predictive distributions of numbers, in the units of the targets."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from bayesify.metrics.arrays import Numbers, as_array, paired, same_shape

__all__ = ["crps", "crps_counts", "crps_of_samples", "interval_coverage", "mae", "rmse"]

# Counts and examples per block, and the rate above which a Poisson distribution is treated as a normal one.
_COUNTS_AT_A_TIME, _EXAMPLES_AT_A_TIME, _NORMAL_FROM = 256, 4096, 1e5


def rmse(mean: Numbers, targets: Numbers) -> float:
    """Root of the mean squared error, `sqrt(mean_i (m_i - y_i)^2)`.

    Args:
        mean: predicted means, `[n]`.
        targets: true values, `[n]`.

    Returns:
        A number in the units of the targets.

    Examples:
        >>> round(bf.metrics.rmse([1.0, 2.0], [4.0, 2.0]), 4)
        2.1213

    """
    prediction, truth = paired(mean, targets, "mean", "targets")
    return float(np.sqrt(np.square(prediction - truth).mean()))


def mae(mean: Numbers, targets: Numbers) -> float:
    """Mean absolute error, `mean_i |m_i - y_i|`.

    Args:
        mean: predicted means, `[n]`.
        targets: true values, `[n]`.

    Returns:
        A number in the units of the targets.

    Examples:
        >>> bf.metrics.mae([1.0, 2.0], [4.0, 2.0])
        1.5

    """
    prediction, truth = paired(mean, targets, "mean", "targets")
    return float(np.abs(prediction - truth).mean())


def crps(means: Numbers, stds: Numbers, targets: Numbers, weights: Numbers | None = None) -> float:
    """Continuous ranked probability score (CRPS) of mixtures of normals.

    The score is the expected distance to the target minus half the expected distance between two samples,

        mean_i A(y - m_i, s_i^2) - mean_ij A(m_i - m_j, s_i^2 + s_j^2) / 2,    A(m, v) = E|X| for X ~ N(m, v).

    Its cost grows with the square of the number of draws.

    Args:
        means: the mean of each draw, `[draws, n]`.
        stds: the standard deviation of each draw, `[draws, n]`.
        targets: true values, `[n]`.
        weights: the share of each draw, `[draws, n]`, with a sum of 1 over the draws; equal shares unless given.

    Returns:
        The mean over the targets, in their units; 0 is best.

    Examples:
        >>> round(bf.metrics.crps([[0.0]], [[1.0]], [0.0]), 4)
        0.2337

    Reference:
        E. P. Grimit, T. Gneiting, V. J. Berrocal and N. A. Johnson, "The continuous ranked probability score for
        circular variables and its application to mesoscale forecast ensemble verification", 2006.

    """
    m, s, y = _mixture(means, stds, targets)
    if not bool((s >= 0).all()):
        raise ValueError(f"stds must not be negative, got {float(s.min())}")
    if weights is None:
        return float(_normal_scores(m, s, y).mean())
    shares = _mixture(means, weights, targets)[1]
    if not bool((shares >= 0).all()) or not torch.allclose(shares.sum(0), torch.ones_like(y), atol=1e-4):
        raise ValueError("weights must not be negative and must sum to 1 over the draws")
    return float(_weighted_scores(m, s, shares, y).mean())


def crps_counts(rates: Numbers, targets: Numbers) -> float:
    """Continuous ranked probability score (CRPS) of equally weighted mixtures of Poisson distributions.

    The score is `sum over k >= 0 of (F(k) - [y <= k])^2`, with F the distribution function of the mixture. F counts as
    1 where `1 - F(k) < 1e-9`. An example with a rate above 100,000 is scored as a mixture of normals,
    `crps(rates, sqrt(rates), targets)`, which differs by less than one part in a thousand.

    Args:
        rates: the rate of each draw, `[draws, n]`.
        targets: true counts, `[n]`.

    Returns:
        The mean over the targets; 0 is best, an infinite rate gives infinity.

    Examples:
        >>> round(bf.metrics.crps_counts([[1.0]], [1.0]), 4)
        0.212

    Reference:
        T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", 2007.

    """
    rate, _, y = _mixture(rates, rates, targets)
    if not bool((rate >= 0).all()):
        raise ValueError(f"rates must not be negative, got {float(rate.min())}")
    if bool(torch.isinf(rate).any()):
        return math.inf
    scores = torch.empty_like(y)
    large = rate.amax(0) > _NORMAL_FROM
    scores[large] = _normal_scores(rate[:, large], rate[:, large].sqrt(), y[large])
    for rows in torch.split(torch.nonzero(~large).reshape(-1), _EXAMPLES_AT_A_TIME):
        scores[rows] = _count_scores(rate[:, rows], y[rows])
    return float(scores.mean())


def crps_of_samples(samples: Numbers, targets: Numbers) -> float:
    """Continuous ranked probability score (CRPS) of equally likely values.

    The score is `E|X - y| - E|X - X'| / 2` with X and X' drawn from the values.

    Args:
        samples: equally likely values of each target, `[samples, n]`.
        targets: true values, `[n]`.

    Returns:
        The mean over the targets, in their units; 0 is best.

    Examples:
        >>> bf.metrics.crps_of_samples([[0.0], [2.0]], [1.0])
        0.5

    Reference:
        T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", 2007.

    """
    values, _, y = _mixture(samples, samples, targets)
    count = len(values)
    ordered = values.sort(0).values
    ranks = (2 * torch.arange(1, count + 1, dtype=y.dtype) - count - 1).unsqueeze(-1)
    between = (ranks * ordered).sum(0) / count**2  # E|X - X'| / 2, from the order
    return float(((values - y).abs().mean(0) - between).mean())


def interval_coverage(lower: Numbers, upper: Numbers, targets: Numbers) -> float:
    """Share of the targets inside `[lower, upper]`; for calibrated intervals it equals their level.

    Args:
        lower: lower ends of the intervals, `[n]`.
        upper: upper ends of the intervals, `[n]`.
        targets: true values, `[n]`.

    Returns:
        A number from 0 to 1.

    Examples:
        >>> bf.metrics.interval_coverage([0.0, 0.0], [1.0, 1.0], [0.5, 2.0])
        0.5

    Reference:
        T. Gneiting, F. Balabdaoui and A. E. Raftery, "Probabilistic forecasts, calibration and sharpness", 2007.

    """
    low, truth = paired(lower, targets, "lower", "targets")
    high, _ = paired(upper, targets, "upper", "targets")
    return float(((low <= truth) & (truth <= high)).mean())


def _normal_scores(m: Tensor, s: Tensor, y: Tensor) -> Tensor:
    draws = len(m)
    between = _distance(torch.zeros_like(m), s.square() * 2)
    # Shifting by k pairs each draw with the one k places before it; shifts k and draws - k give the same pairs.
    for shift in range(1, draws // 2 + 1):
        pairs = _distance(m - m.roll(shift, 0), s.square() + s.square().roll(shift, 0))
        between = between + (pairs if 2 * shift == draws else 2 * pairs)
    return _distance(y - m, s.square()).mean(0) - 0.5 * between.sum(0) / draws**2


def _weighted_scores(m: Tensor, s: Tensor, shares: Tensor, y: Tensor) -> Tensor:
    between = torch.zeros_like(y)
    for shift in range(len(m)):
        pairs = _distance(m - m.roll(shift, 0), s.square() + s.square().roll(shift, 0))
        between = between + (shares * shares.roll(shift, 0) * pairs).sum(0)
    return (shares * _distance(y - m, s.square())).sum(0) - 0.5 * between


def _count_scores(rate: Tensor, y: Tensor) -> Tensor:
    total, first = torch.zeros_like(y), 0
    while len(y):
        counts = torch.arange(first, first + _COUNTS_AT_A_TIME, dtype=y.dtype)
        below = torch.zeros(len(y), _COUNTS_AT_A_TIME, dtype=y.dtype)
        for rate_of_draw in rate:
            below += torch.special.gammaincc(counts + 1, rate_of_draw[:, None]) / len(rate)
        total += (below - (y[:, None] <= counts).to(y.dtype)).square().sum(1)
        first += _COUNTS_AT_A_TIME
        if float(below[:, -1].min()) > 1 - 1e-9:
            break
    # From here on F is 1: each count below a target adds one.
    return total + (y.ceil() - first).clamp(min=0)


def _distance(mean: Tensor, variance: Tensor) -> Tensor:
    """`E|X|` for `X ~ N(mean, variance)`; a variance of zero is a fixed number."""
    std = variance.sqrt()
    z = torch.where(std > 0, mean / std, math.inf * mean.sign()).nan_to_num(0.0, math.inf, -math.inf)
    distance: Tensor = mean * torch.erf(z * math.sqrt(0.5)) + std * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z * z)
    return distance


def _mixture(means: Numbers, stds: Numbers, targets: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    m, s, y = as_array(means, "means"), as_array(stds, "stds"), as_array(targets, "targets")
    if m.ndim < 2 or m.shape != s.shape or m[0].size != y.size or not same_shape(m.shape[1:], y.shape):
        shapes = f"{list(m.shape)}, {list(s.shape)} and {list(y.shape)}"
        raise ValueError(f"a mixture needs means and stds [draws, n] for targets [n], got {shapes}")
    flat_m, flat_s = (torch.from_numpy(array.reshape(len(m), -1)) for array in (m, s))
    return flat_m, flat_s, torch.from_numpy(y.reshape(-1))
