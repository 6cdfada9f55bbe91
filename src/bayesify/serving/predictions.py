"""What is reported about each input, as NumPy arrays `[inputs, ...]`; both protocols use the same names.

Classes: `probs`, `label`, `confidence`, `entropy`, `aleatoric`, `epistemic` (nats). Numbers: `mean`, `std`,
`aleatoric`, `epistemic` (variances) and `interval`, the lower and upper end of the central 95% interval. Models that
were certified add `set` (which classes are in the conformal set) or `conformal` (the ends of the conformal interval).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bayesify.decisions.conformal import Conformal
    from bayesify.predictive import Predictive

Table = dict[str, "NDArray[Any]"]


def table_of(predictive: Predictive, promise: Conformal | None = None) -> Table:
    """Everything that is reported about each input, `[inputs, ...]` by name; `set` or `conformal` where guaranteed."""
    if predictive.kind == "classification":
        names = {"probs": "probs", "label": "labels"}
        names |= {name: name for name in ("confidence", "entropy", "aleatoric", "epistemic")}
        found = {name: getattr(predictive, score).cpu().numpy() for name, score in names.items()}
        return found if promise is None else found | {"set": promise.sets_of(predictive).cpu().numpy()}
    table = {name: getattr(predictive, name).cpu().numpy() for name in ("mean", "std", "aleatoric", "epistemic")}
    table["interval"] = np.stack([end.cpu().numpy() for end in predictive.interval()], -1)
    if promise is not None:
        if promise.kind == "jackknife+" and predictive.draws != promise.provenance.draws:
            raise HTTPException(
                422, f"the intervals of this model need all its members: draws={promise.provenance.draws}"
            )
        table["conformal"] = np.stack([end.cpu().numpy() for end in promise.interval_of(predictive)], -1)
    return table


def accepted(table: Table, at_least: float | None, at_most: float | None) -> NDArray[np.bool_]:
    """Which predictions are certain enough, `[inputs, ...]`; all of them where no threshold is given."""
    if "confidence" in table:
        if at_most is not None:
            raise HTTPException(422, "at_most is for models of numbers, and this one predicts classes: give at_least")
        score = table["confidence"]
        return np.ones(score.shape, bool) if at_least is None else np.asarray(score >= at_least)
    if at_least is not None:
        raise HTTPException(422, "at_least is for models of classes, and this one predicts numbers: give at_most")
    width = table["interval"][..., 1] - table["interval"][..., 0]
    return np.ones(width.shape, bool) if at_most is None else np.asarray(width <= at_most)


def check_finite(table: Table) -> None:
    """Raise a 422 error where a prediction is NaN or infinite: JSON has neither."""
    for name, values in table.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            wrong = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))
            raise HTTPException(
                422, f"{name} of input {int(wrong[0])} is not finite: is the input on the scale of the training data?"
            )
