"""How noise enters a gradient in training: through the weights, the pre-activations (local) or signs (flipout)."""

from bayesify.estimators.layers import LayerType, register, stochastic_layers, why_not
from bayesify.estimators.pass_ import noisy_outputs

ESTIMATORS = ("weight", "local", "flipout")

__all__ = ["ESTIMATORS", "LayerType", "noisy_outputs", "register", "stochastic_layers", "why_not"]
