"""The estimator `moments`: means and variances instead of draws, for prediction and for training."""

from bayesify.methods.variational.estimators.moments.gaussians import Gaussians
from bayesify.methods.variational.estimators.moments.perceptron import prediction_of
from bayesify.methods.variational.estimators.moments.propagation import Propagation, chain_of
from bayesify.methods.variational.estimators.moments.readout import POINTS, contrast_of, moment_outputs, stand_ins

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
