"""The estimator `moments`: means and variances instead of draws, for prediction and for training."""

from bayesify.methods.variational.estimators.moments.fast_perceptron import prediction_of
from bayesify.methods.variational.estimators.moments.gaussians import Gaussians
from bayesify.methods.variational.estimators.moments.predictions import POINTS, contrast_of, moment_outputs, stand_ins
from bayesify.methods.variational.estimators.moments.propagation import Propagation, chain_of

__all__ = [
    "POINTS",
    "Gaussians",
    "Propagation",
    "chain_of",
    "contrast_of",
    "moment_outputs",
    "prediction_of",
    "stand_ins",
]
