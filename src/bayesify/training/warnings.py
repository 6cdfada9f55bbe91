"""Warnings about a training run: each check reads one number per epoch and returns a sentence, or None.

`fit` logs the sentence of `kl_frozen`. Code that shows warnings elsewhere trains inside `without_warnings`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

# A further gain counts when it exceeds this share of the whole fall of the loss.
STILL_FALLING = 0.01
# The KL of converged networks moved by a fifth or more, that of networks stopped too early by a tenth at most.
FROZEN_KL = 0.05
# An NLL that exceeds the first epoch's by this factor is not noise.
BLOWN_UP = 10.0
# A slope must exceed its standard error by this factor.
STANDARD_ERRORS = 2.0
_FEWEST_EPOCHS = 5
_MARK = "training_warning"

logger = logging.getLogger("bayesify")


def blew_up(nlls: Sequence[float]) -> str | None:
    """Warn when the negative log-likelihood rose to ten times its value in the first epoch, or more.

    Args:
        nlls: one NLL per epoch.

    Returns:
        The warning, or None.

    """
    values = [value for value in nlls if value is not None]
    if len(values) < 2 or max(values[1:]) <= BLOWN_UP * max(values[0], 1.0):
        return None
    epoch = values.index(max(values[1:]))
    return (
        f"training blew up: the NLL rose to {values[epoch]:.3g} in epoch {epoch + 1}, from {values[0]:.3g} at the "
        "start; lower the learning rate"
    )


def not_converged(losses: Sequence[float]) -> str | None:
    """Warn when the loss still fell in the last tenth of the epochs.

    A straight line through the last tenth (at least five epochs) must fall by more than two standard errors, and fast
    enough that a tenth more epochs would gain over a hundredth of the whole fall so far.

    Args:
        losses: one loss per epoch.

    Returns:
        The warning, or None.

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
    """Warn when the KL moved by less than a twentieth of its first value.

    Args:
        kls: one KL per epoch, in nats.

    Returns:
        The warning, or None.

    """
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
    """A number with four significant digits, or in whole thousands."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def warn(warning: str | None) -> None:
    """Log a warning in the form that the command line prints; nothing where there is none.

    Args:
        warning: the sentence of one of the checks.

    """
    if warning is not None:
        logger.warning("before you trust it: %s", warning, extra={_MARK: True})


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep the warnings of `warn` out of the log while code inside runs; other messages pass."""

    def passes(record: logging.LogRecord) -> bool:
        return not hasattr(record, _MARK)

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
