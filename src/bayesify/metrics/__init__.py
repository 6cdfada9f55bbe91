"""Scores of predictions and their uncertainties: from tensors or arrays to one Python float each.

`probs` are `[n, classes]` with integer `targets` `[n]` (further dimensions before the classes are flattened),
`confidence` is higher where a prediction is more certain, `losses` are per example (an error is a loss of 1). Shapes
are never broadcast.
"""

from bayesify.metrics.arrays import Floats, Numbers, as_array, paired
from bayesify.metrics.classification import (
    Reliability,
    accuracy,
    brier,
    expected_calibration_error,
    nll,
    reliability_curve,
)
from bayesify.metrics.detection import aupr, auroc, fpr95
from bayesify.metrics.regression import crps, crps_counts, interval_coverage, mae, rmse
from bayesify.metrics.selective import accepted_losses, augrc, aurc, excess_aurc

__all__ = [
    "Floats",
    "Numbers",
    "Reliability",
    "accepted_losses",
    "accuracy",
    "as_array",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "crps",
    "crps_counts",
    "excess_aurc",
    "expected_calibration_error",
    "fpr95",
    "interval_coverage",
    "mae",
    "nll",
    "paired",
    "reliability_curve",
    "rmse",
]
