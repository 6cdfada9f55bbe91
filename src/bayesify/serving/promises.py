"""What was guaranteed for a served model, and whether it still holds.

A guarantee holds for predictions with its own draws and seed, and for inputs like those of its calibration. Inputs of
all requests are watched by a conformal test martingale (`decisions/martingale.py`). It needs no labels, so it sees a
change of the inputs and not a change of what the labels mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from bayesify.decisions.conformal import Conformal, conformal_of
from bayesify.decisions.martingale import ShiftMonitor, input_scores, odds, reference_of
from bayesify.decisions.provenance import Provenance
from bayesify.decisions.refusal import Refusal, promised
from bayesify.methods import Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from bayesify.serving.predictions import Table

CALIBRATED = "calibrated"
# The scores in a table of predictions.
SERVED = ("confidence", "entropy", "aleatoric", "epistemic", "std")


class Promises:
    """The guarantees of one model.

    Args:
        method: the method of a run, with its guarantees.

    """

    def __init__(self, method: Method) -> None:
        known = promised(method)
        self.refusal: Refusal | None = known[-1] if known else None
        self.conformal: Conformal | None = conformal_of(method)
        reference = reference_of(method.guarantees)
        self.monitor = None if reference is None else ShiftMonitor(reference)

    @property
    def any(self) -> bool:
        """Whether something was guaranteed."""
        return self.refusal is not None or self.conformal is not None

    def calibrated(self, name: str) -> Provenance:
        """The origin of the guaranteed error, for a request with a "calibrated" threshold; 422 without one."""
        if self.refusal is None:
            raise HTTPException(422, "no error was guaranteed for this model: bayesify certify RUN --max-error")
        expected = "at_least" if self.refusal.by == "confidence" else "at_most"
        if name != expected:
            raise HTTPException(
                422, f'the guarantee of this model is on its {self.refusal.by}: give {expected}="calibrated"'
            )
        if self.refusal.by not in SERVED:
            raise HTTPException(422, f"the guarantee of this model is on its {self.refusal.by}, which is not served")
        return self.refusal.provenance

    def accepted(self, table: Table) -> NDArray[np.bool_]:
        """Which predictions the guaranteed error covers."""
        assert self.refusal is not None
        score = table[self.refusal.by]
        sure = score >= self.refusal.threshold if self.refusal.by == "confidence" else score <= self.refusal.threshold
        result: NDArray[np.bool_] = sure
        return result

    def observe(self, table: Table, x: Tensor, draws: int, seed: int) -> None:
        """Compare the inputs of a request with those of the calibration.

        Args:
            table: what was predicted for them.
            x: inputs as the network takes them.
            draws: of the prediction.
            seed: of the draws.

        """
        if self.monitor is None:
            return
        values = table["confidence"] if "confidence" in table else -table["std"]
        scores = input_scores(values.reshape(len(values), -1).astype(float).mean(1), x)
        if not self._same(draws, seed):
            del scores["certainty"]  # another number of draws has other confidences
        self.monitor.add(scores)

    def status(self, draws: int, seed: int) -> dict[str, Any] | None:
        """What is guaranteed for predictions with these draws, and whether it holds; None where nothing was guaranteed.

        Args:
            draws: of the prediction.
            seed: of the draws.

        """
        if not self.any:
            return None
        about: dict[str, Any] = {}
        if self.refusal is not None:
            about |= {"max_error": self.refusal.max_error, "confidence": self.refusal.confidence}
        if self.conformal is not None:
            about |= {"coverage": self.conformal.coverage, "sets": self.conformal.kind}
        lapsed = self._lapsed(draws, seed)
        evidence = None if self.monitor is None else round(self.monitor.evidence, 4)
        return about | {"holds": lapsed is None, "reason": lapsed, "evidence_of_shift": evidence}

    def describe(self) -> dict[str, Any]:
        """The guarantees in words, with the draws and the seed that they need, and whether the inputs still fit."""
        made = [promise.certificate.promise for promise in (self.refusal, self.conformal) if promise is not None]
        origin = next(iter(self._origins.values()))
        lapsed = self.monitor is not None and self.monitor.lapsed
        return {"promised": made, "draws": origin.draws, "seed": origin.seed, "holds": not lapsed}

    def _lapsed(self, draws: int, seed: int) -> str | None:
        if self.monitor is not None and self.monitor.lapsed:
            return (
                f"the inputs no longer look like those of the calibration (evidence {odds(self.monitor.evidence)} "
                f"after {self.monitor.lapsed_at} inputs): certify the model again on new examples"
            )
        for name, origin in self._origins.items():
            if (draws, seed) != (origin.draws, origin.seed):
                what = "it was" if self._same(origin.draws, origin.seed) else f"the {name} was"
                return f"{what} made for {origin.draws} draws and seed {origin.seed}, this request has other ones"
        return None

    def _same(self, draws: int, seed: int) -> bool:
        """Whether every guarantee was made for such predictions; two calls of `certify` may differ."""
        return all((draws, seed) == (origin.draws, origin.seed) for origin in self._origins.values())

    @property
    def _origins(self) -> dict[str, Provenance]:
        made = {"guaranteed error": self.refusal, "guaranteed coverage": self.conformal}
        return {name: promise.provenance for name, promise in made.items() if promise is not None}
