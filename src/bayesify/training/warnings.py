"""What a history of training says against trusting its result: a sentence, or None where all is well.

The functions are pure, of one number per epoch. `fit` logs what `kl_frozen` says; a command line or a page that says it
in a place of its own trains inside `unheard`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

# One part in a hundred of all that training gained is still something.
STILL_FALLING = 0.01
# Of networks trained to the end the KL moved by a fifth and more; of those that were not, by a tenth at most.
FROZEN_KL = 0.05
# An NLL so many times what guessing gave, in the middle of training, is not noise.
BLOWN_UP = 10.0
# A gap must not be chance.
STANDARD_ERRORS = 2.0
_FEWEST_EPOCHS = 5
_MARK = "doubt"

logger = logging.getLogger("bayesify")


def blew_up(nlls: Sequence[float]) -> str | None:
    """Whether the negative log-likelihood rose, on the way, to several times what it was at the start."""
    values = [value for value in nlls if value is not None]
    if len(values) < 2 or max(values[1:]) <= BLOWN_UP * max(values[0], 1.0):
        return None
    epoch = values.index(max(values[1:]))
    return (
        f"training blew up: the NLL rose to {values[epoch]:.3g} in epoch {epoch + 1}, from {values[0]:.3g} at the "
        "start; lower the learning rate"
    )


def not_converged(losses: Sequence[float]) -> str | None:
    """Whether the loss still fell in the last tenth of the epochs.

    A straight line through the last tenth (at least five epochs) must fall by more than its own noise, and
    fast enough that a further tenth of the epochs would gain over a hundredth of the whole fall so far.
    """
    values = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)], dtype=np.float64)
    if len(values) < _FEWEST_EPOCHS:
        return None
    tail = values[-max(_FEWEST_EPOCHS, math.ceil(len(values) / 10)) :]
    epochs = np.arange(len(tail), dtype=np.float64)
    slope, level = np.polyfit(epochs, tail, 1)
    residual = tail - (slope * epochs + level)
    deviation = math.sqrt(float(residual @ residual) / (len(tail) - 2) / float(((epochs - epochs.mean()) ** 2).sum()))
    fall = values[0] - values.min()
    ahead = -slope * max(1.0, len(values) / 10)
    if -slope <= STANDARD_ERRORS * deviation or fall <= 0 or ahead <= STILL_FALLING * fall:
        return None
    return (
        f"not converged: the loss still fell by {-slope:.3g} an epoch at the end of {len(values)} epochs; "
        "train longer before comparing"
    )


def kl_frozen(kls: Sequence[float]) -> str | None:
    """Whether the KL hardly moved in training: by less than a twentieth of where it began."""
    values = np.array([kl for kl in kls if kl is not None and math.isfinite(kl)], dtype=np.float64)
    if len(values) < 2 or not values.any():
        return None
    span = float(values.max() - values.min())
    if span > FROZEN_KL * float(np.abs(values[0])):
        return None
    return (
        f"the KL hardly moved: from {brief(values[0])} to {brief(values[-1])} nats in {len(values)} epochs; "
        "the posterior has not responded to prior and data: train longer or raise the learning rate"
    )


def brief(value: float) -> str:
    """A number with as many digits as a sentence needs."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def voice(doubt: str | None) -> None:
    """Log a doubt, in the words that the command line prints."""
    if doubt is not None:
        logger.warning("before you trust it: %s", doubt, extra={_MARK: True})


@contextmanager
def unheard() -> Iterator[None]:
    """Train without a word of doubt in the log: whoever trains says it elsewhere, or throws the result away."""

    def other(record: logging.LogRecord) -> bool:
        return not hasattr(record, _MARK)

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)
