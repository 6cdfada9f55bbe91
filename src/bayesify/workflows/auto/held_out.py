"""The second use of the rows that decide when to stop: they scale the widths of predicted numbers.

The members of an ensemble each fit the noise; their average adds what they disagree on, and its intervals are too wide.
One factor for all widths, the best by the NLL of the held-out rows, has no room to overfit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesify.decisions import recalibrate
from bayesify.likelihoods import Regression
from bayesify.methods import Method, saving
from bayesify.training.batches import TensorExamples

# Fewer rows fix the factor to more than 5%, and would do harm as often as good.
_FEWEST = 200


def recalibrated(method: Method, held_out: Any, run: str | Path | None) -> None:
    """Scale the widths of a fitted method on held-out rows; a run folder keeps the factor.

    Args:
        method: fitted, predicting numbers.
        held_out: `(x, y)` or examples that did not train it.
        run: its folder, where it has one.

    """
    pair = (held_out.x, held_out.y) if isinstance(held_out, TensorExamples) else held_out
    likelihood = method.likelihood
    continuous = isinstance(likelihood, Regression) and not likelihood.discrete
    if not continuous or not isinstance(pair, tuple) or len(pair[1]) < _FEWEST:
        return
    recalibrate(method, pair, "variance")
    if run is not None:
        saving.save_guarantees(method, Path(run))
