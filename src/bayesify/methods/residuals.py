"""What the errors of a regression with Gaussian noise show: outliers, skewed targets, a noise of a wrong size.

An outlier is an example whose target is far from those of its nearest neighbours, and which the fit does not explain
either: |y - median of the neighbours| > 10 robust standard deviations. A few of them make the Gaussian noise, and with
it every interval, as wide as they are far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.methods.baselines import as_numbers
from bayesify.training.batches import Batch
from bayesify.training.warnings import outliers, skewed_targets, too_wide, wrong_noise

if TYPE_CHECKING:
    from bayesify.methods.fitting import Fitting
    from bayesify.predictive import Predictive

# Likelihoods whose noise is as likely above as below.
SYMMETRIC = ("gaussian", "student-t", "laplace")
FEWEST, FEWEST_FOR_WIDTH = 30, 100
NEIGHBOURS = 10
# The standard deviation of a Gaussian over its median absolute deviation.
_ROBUST = 1.4826
# Outliers are at most this share of the examples, and make at least this share of the variance of the targets.
FAR, MOST, LEAST_SHARE = 10.0, 0.1, 0.5
# They are explained where the fit leaves less than this share of their squared distances. More is left even where a
# network has learned a few outliers by heart.
EXPLAINED = 0.1
# Targets are skewed if their skewness is above the first while that of their logarithms is within the second, and their
# standard deviation is above this share of the mean: a Gaussian then has much of its probability below zero.
SKEWNESS, OF_LOGARITHMS, OF_THE_MEAN = 2.0, 1.0, 0.75
# Squared errors over the variance of the noise have the mean 1 where the noise is right. A noise that was given may be
# known from elsewhere, so only a factor of five or ten in its standard deviation is told.
TOO_WIDE = 0.4
# Examples per weight from which predictions of training examples are judged too. By least squares, w weights leave a
# share of 1 - w / N of the variance of the noise: with three examples for each, two thirds, far more than 0.4.
ENOUGH = 3
GIVEN_TOO_SMALL, GIVEN_TOO_LARGE = 25.0, 0.01
WORSE_THAN_THE_MEAN = 1.2


@torch.no_grad()
def errors_judged(
    method: Fitting, predictive: Predictive, scored: Batch, seen: Tensor, where: str, cure: str
) -> dict[str, str | None]:
    """Warnings about the errors of a fit whose noise is Gaussian, and about skewed targets of any symmetric noise.

    Args:
        method: the method.
        predictive: its predictions.
        scored: the examples `(x, y)` that were predicted.
        seen: the targets of all training examples.
        where: these examples, such as `training data`.
        cure: what to do about a fit that has not learned enough.

    Returns:
        Sentences by kind, None where there is nothing to warn about; empty for other likelihoods.

    """
    likelihood: Any = method.likelihood
    truth = scored[1].double().flatten().cpu()
    if likelihood.name not in SYMMETRIC or len(truth) < FEWEST or len(truth) != len(scored[1]):
        return {}
    mean = predictive.mean.double().flatten().cpu()
    if len(mean) != len(truth):
        return {}
    known = seen.double().flatten().cpu()
    if _skewed(known):
        return {"skewed_targets": skewed_targets(float(known.mean()), float(known.std()))}
    if likelihood.name != "gaussian":
        return {}
    far = _far_from_neighbours(scored[0], truth, truth - mean)
    if far is not None:
        count, share = far
        return {"outliers": outliers(count, len(truth), share, where)}
    squares = (truth - mean).square()
    error = float(squares.mean().sqrt())
    if isinstance(likelihood.noise, int | float):
        ratio = float(squares.mean()) / likelihood.noise**2
        # A fit that is worse than the mean of the targets has another fault.
        if ratio > GIVEN_TOO_SMALL and error < WORSE_THAN_THE_MEAN * float(truth.std()):
            return {"noise_too_small": wrong_noise(likelihood.noise, error, where)}
        large = ratio < GIVEN_TOO_LARGE and len(truth) >= FEWEST_FOR_WIDTH
        return {"noise_too_large": wrong_noise(likelihood.noise, error, where)} if large else {}
    if len(truth) < FEWEST_FOR_WIDTH:
        return {}
    # A learned noise is as large as the errors of the draws; their mean may be much nearer to the targets.
    of_each: Any = predictive.likelihood  # with the noise of each draw, where it has a prior
    of_draws = of_each.mean(predictive.outputs).double().reshape(-1, len(truth)).cpu()
    pairs = {"noise": ((of_draws - truth).square().mean(0), predictive.aleatoric)}
    if len(seen) >= ENOUGH * method.network.size:
        # With so many examples those that were trained on are predicted as others are.
        pairs["prediction"] = (squares, predictive.variance)
    for what, (errors, variances) in pairs.items():
        variance = variances.double().flatten().cpu()
        if float((errors / variance).mean()) < TOO_WIDE:
            deviation, error = float(variance.mean().sqrt()), float(errors.mean().sqrt())
            return {"too_wide": too_wide(what, deviation, error, where, cure)}
    return {}


def _skewed(y: Tensor) -> bool:
    if not bool((y > 0).all()) or not float(y.std()) > OF_THE_MEAN * float(y.mean()):
        return False
    return _skewness(y) > SKEWNESS and abs(_skewness(y.log())) < OF_LOGARITHMS


def _skewness(y: Tensor) -> float:
    return float(((y - y.mean()) / y.std()).pow(3).mean())


def _far_from_neighbours(x: Any, y: Tensor, errors: Tensor) -> tuple[int, float] | None:
    """How many targets are outliers, and their share of the variance; None where there are none, or too many."""
    rows = as_numbers(x)
    if rows is None or float(y.var()) == 0:
        return None
    rows = rows.double().cpu()
    spread = rows.std(0)
    if not bool((spread > 0).any()):
        return None
    rows = rows[:, spread > 0] / spread[spread > 0]
    distance = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    near = distance.topk(NEIGHBOURS, largest=False).indices
    away = y - y[near].median(1).values
    typical = float(away.abs().median())
    if typical == 0:  # most targets are that of their neighbours, such as zero: there is no size to be far by
        return None
    far = away.abs() > FAR * _ROBUST * typical
    count = int(far.sum())
    if not 0 < count <= MOST * len(y):
        return None
    share = float(away[far].square().sum() / (y - y.mean()).square().sum())
    explained = float(errors[far].square().sum()) < EXPLAINED * float(away[far].square().sum())
    return None if explained or share < LEAST_SHARE else (count, min(share, 1.0))
