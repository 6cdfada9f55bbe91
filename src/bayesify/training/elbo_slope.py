"""An end of variational training by its own objective: stop when the ELBO no longer rises.

A line is fitted to the ELBO of the last W epochs by least squares. With e the residuals and t the epochs,

    slope = sum (t - mean t) (ELBO - mean ELBO) / S,     S = sum (t - mean t)^2
    standard error = sqrt(sum e^2 / (W - 2) / S)

Training stops when the slope is less than twice its standard error: in W epochs the ELBO rose by no more than noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesify.errors import at_least
from bayesify.training.callbacks import Callback, StopTraining

if TYPE_CHECKING:
    from bayesify.training.plan import Plan
    from bayesify.training.trainable import Trainable

# A slope of less is noise: of ELBOs that stand still, one window in forty looks rising.
_STANDARD_ERRORS = 2.0
_FEWEST = 10


class StopAtELBO(Callback):
    """Stop variational training when the ELBO no longer rises.

    It needs no validation data. Give `fit` more epochs than are needed, and a constant learning rate: a falling one
    makes the ELBO level off at the end of its own plan. A resumed run counts its epochs anew.

    Args:
        window: epochs over which the ELBO has to rise by more than its noise, at least 10. A longer window sees
            smaller slopes, and stops later.

    Raises:
        ValueError: the window is too short, or the method has no ELBO.

    Examples:
        >>> bnn = bf.Variational(net, "categorical", estimator="local")
        >>> ends = [bf.callbacks.StopAtELBO(window=40)]
        >>> history = bnn.fit((x, y), epochs=2000, learning_rate=0.03, callbacks=ends, progress=False)
        >>> len(history) < 2000, history.stopped
        (True, 'the ELBO has not risen by more than its noise for 40 epochs')

    """

    def __init__(self, window: int = 100) -> None:
        self.window = at_least("window", window, _FEWEST)
        self._values: list[float] = []

    def on_fit_start(self, method: Trainable, plan: Plan) -> None:
        """Refuse a method without an ELBO, and begin to count.

        Args:
            method: the method in training.
            plan: the settings of the training.

        """
        if not method.has_elbo:
            raise ValueError(
                f"StopAtELBO needs a method with an ELBO, variational or ivon, the method is {method.name}: use "
                "validation= and patience="
            )
        self._values = []

    def on_epoch_end(self, method: Trainable, record: dict[str, Any]) -> None:
        """Stop where the last epochs show no rise.

        Args:
            method: the method in training.
            record: of the epoch.

        """
        self._values.append(float(record["elbo"]))
        if len(self._values) < self.window:
            return
        slope, error = slope_of(self._values[-self.window :])
        if slope < _STANDARD_ERRORS * error or not math.isfinite(slope):
            raise StopTraining(f"the ELBO has not risen by more than its noise for {self.window} epochs")


def slope_of(values: Sequence[float]) -> tuple[float, float]:
    """The slope of a line through values at 0, 1, 2, ..., and its standard error.

    Args:
        values: at least three.

    Returns:
        Slope and standard error, per step.

    """
    heights = np.asarray(values, dtype=np.float64)
    places = np.arange(len(heights)) - (len(heights) - 1) / 2
    spread = float(places @ places)
    slope = float(places @ heights) / spread
    rest = heights - heights.mean() - slope * places
    return slope, math.sqrt(float(rest @ rest) / (len(heights) - 2) / spread)
