"""How noise enters a gradient in training: by weights, pre-activations (local), signs (flipout), or not (moments)."""

from bayesify.estimators.layers import LayerType, register, stochastic_layers, why_not
from bayesify.estimators.pass_ import noisy_outputs

ESTIMATORS = ("weight", "local", "flipout", "moments")

__all__ = ["ESTIMATORS", "LayerType", "noisy_outputs", "register", "stochastic_layers", "why_not"]
