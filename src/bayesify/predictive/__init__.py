"""From posterior draws to a prediction and its uncertainty."""

from bayesify.predictive.predictive import Predictive

__all__ = ["Predictive"]
