"""R-hat and effective draws of many quantities at once, after every fit and without ArviZ (`convergence.py` has its).

Rank-normalised split R-hat, the larger of bulk and tail, and bulk effective draws with Geyer's initial monotone
sequence (A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner, Rank-normalization, folding, and
localization, 2021).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

Array = np.ndarray[Any, np.dtype[Any]]


def split_r_hat(values: Array) -> Array:
    """The R-hat of each quantity, `[chains, draws, quantities]` -> `[quantities]`.

    A constant quantity has R-hat 1. Chains that each stay at another value have R-hat infinity.
    """
    halves = _halves(values)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_ratio(_normal_scores(halves)), _ratio(_normal_scores(folded)))


def error_of_means(values: Array, spread: Array) -> float:
    """How uncertain the mean prediction of all chains is, as a share of the predictive standard deviation.

    The chains' means differ by chance, or because chains stay in different places. The standard error of their average
    is compared with the spread of what is predicted, noise included. A single chain counts as its two halves.

    Args:
        values: predictions, `[chains, draws, quantities]`.
        spread: the predictive standard deviation of each, `[quantities]`.

    Returns:
        The root mean square over quantities, over that of the spread.

    """
    means = (_halves(values) if len(values) == 1 else values).mean(1)
    error = means.var(0, ddof=1) / len(means)
    total = float(np.mean(spread**2))
    return float(np.sqrt(error.mean() / total)) if total > 0 else 0.0


def effective_draws(values: Array) -> Array:
    """The effective number of draws of each quantity, `[chains, draws, quantities]` -> `[quantities]`.

    A constant quantity counts every draw.
    """
    scores = _normal_scores(_halves(values))
    chains, draws, _ = scores.shape
    centred = scores - scores.mean(1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * draws, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :draws] / draws
    within = covariance[:, 0].mean(0) * draws / (draws - 1)
    total = within * (draws - 1) / draws + scores.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance.mean(0)) / total
    correlation[0] = 1.0
    pairs = correlation[: draws // 2 * 2].reshape(draws // 2, 2, -1).sum(1)
    # Sums of neighbours are positive and fall, in theory: the first that is not begins the noise.
    pairs = np.minimum.accumulate(np.where(np.minimum.accumulate(pairs, 0) > 0, pairs, 0.0), 0)
    size = float(chains * draws)
    effective = size / np.maximum(2 * pairs.sum(0) - 1, 1 / np.log10(size))
    return np.where(np.isfinite(effective) & (total > 0), effective, size)


def _halves(values: Array) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 3 or array.shape[1] < 4:
        raise ValueError(f"convergence needs [chains, draws of at least 4, quantities], got shape {array.shape}")
    half = array.shape[1] // 2
    return np.concatenate((array[:, :half], array[:, -half:]))


def _normal_scores(values: Array) -> Array:
    """Normal quantiles of the ranks over all chains, quantity by quantity."""
    flat = values.reshape(-1, values.shape[-1])
    ranks = scipy.stats.rankdata(flat, axis=0)
    return np.asarray(scipy.special.ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(values.shape)


def _ratio(scores: Array) -> Array:
    draws = scores.shape[1]
    within, between = scores.var(1, ddof=1).mean(0), scores.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(between / within + (draws - 1) / draws)
    return np.where((within == 0) & (between == 0), 1.0, ratio)
