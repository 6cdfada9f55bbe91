"""Scores of predictions and their uncertainties: from tensors or arrays to one Python float each.

`probs` are `[n, classes]` with integer `targets` `[n]` (further dimensions before the classes are flattened),
`confidence` is higher where a prediction is more certain, `losses` are per example (an error is a loss of 1). Shapes
are never broadcast.
"""

# Each file lists what it adds: a new metric is named in its own file alone.
from bayesify.metrics import classification, detection, imbalance, regression, selective
from bayesify.metrics.arrays import Floats, Numbers, as_array, paired
from bayesify.metrics.classification import *  # noqa: F403
from bayesify.metrics.detection import *  # noqa: F403
from bayesify.metrics.imbalance import *  # noqa: F403
from bayesify.metrics.regression import *  # noqa: F403
from bayesify.metrics.selective import *  # noqa: F403

__all__ = ["Floats", "Numbers", "as_array", "paired"]
__all__ += classification.__all__
__all__ += detection.__all__
__all__ += imbalance.__all__
__all__ += regression.__all__
__all__ += selective.__all__
