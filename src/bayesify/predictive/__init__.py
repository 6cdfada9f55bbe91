"""From posterior draws to a prediction and its uncertainty."""

from bayesify.predictive.predictive import Predictive
from bayesify.predictive.recalibrated import Recalibrated

__all__ = ["Predictive", "Recalibrated"]
