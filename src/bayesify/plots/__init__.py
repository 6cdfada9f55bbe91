"""Plots as functions that return a matplotlib Axes; `axes=` says where to draw."""

from bayesify.plots.agreement import predicted_against_true
from bayesify.plots.images import image_gallery
from bayesify.plots.input_space import regression_bands, uncertainty_surface
from bayesify.plots.predictions import entropy_histogram, predictive_distribution
from bayesify.plots.quality import (
    error_against_spread,
    interval_calibration,
    method_comparison,
    reliability,
    risk_coverage,
)
from bayesify.plots.training import training_history, weight_histograms
from bayesify.plots.weights import pruning_curve, snr_cumulative, snr_histogram, weight_densities

__all__ = [
    "entropy_histogram",
    "error_against_spread",
    "image_gallery",
    "interval_calibration",
    "method_comparison",
    "predicted_against_true",
    "predictive_distribution",
    "pruning_curve",
    "regression_bands",
    "reliability",
    "risk_coverage",
    "snr_cumulative",
    "snr_histogram",
    "training_history",
    "uncertainty_surface",
    "weight_densities",
    "weight_histograms",
]
