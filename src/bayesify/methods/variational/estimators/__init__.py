"""Estimators of the training gradient: drawn weights, drawn pre-activations (local), signs (flipout), or moments."""

from bayesify.methods.variational.estimators.layers import LayerType, register, stochastic_layers, why_not
from bayesify.methods.variational.estimators.training_pass import noisy_outputs

ESTIMATORS = ("weight", "local", "flipout", "moments")

__all__ = ["ESTIMATORS", "LayerType", "noisy_outputs", "register", "stochastic_layers", "why_not"]
