"""Whether inputs still look like the calibration examples: a conformal test martingale.

A guarantee needs new inputs drawn like the calibration examples. Each new score gets a conformal p-value, its
randomised rank among all scores before it and those of the calibration. If all are exchangeable, the p-values are
independent and uniform, and no strategy that bets on them wins: its capital M, which starts at 1, is a martingale, so

    P(M ever reaches 1 / risk) <= risk

(Ville's inequality; Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005). For each score it bets
on p and on its distance from the middle, each time that it is large and that it is small: a bet multiplies what is at
stake by `1 + (p - 1/2)` or `1 - (p - 1/2)` (the bets of the simple jumper of Vovk et al., "Retrain or not retrain:
conformal test martingales for change-point detection", 2021, arXiv:2102.10439). While nothing changes, what is at stake
shrinks exponentially. So half of the capital is held back at first, and after n inputs the share
`1 / (2 sqrt(1 + n / 1000))` still is: each input puts a little of it at stake, and a change is seen after any number of
unchanged inputs. Labels are not needed, so a change of the labels alone is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesify.errors import RunError, first_line

RISK = 0.01
_BINS = 64
# A larger count comes from a damaged or hostile file; sums of such counts would not fit in 64 bits.
_MOST_COUNTED = 1 << 53
_BETS = np.array([-1.0, 1.0])
_PATIENCE = 1000


def input_scores(certainty: NDArray[Any], x: Any) -> dict[str, NDArray[np.float64]]:
    """What is watched of each input: the certainty of its prediction, and mean and deviation of its numbers.

    Args:
        certainty: one number for each input, such as its confidence.
        x: inputs as the network takes them, `[n, ...]`; of other forms only the certainty is watched.

    """
    scores = {"certainty": np.asarray(certainty, dtype=np.float64)}
    if isinstance(x, Tensor) and x.ndim > 1 and x.is_floating_point():
        flat = x.detach().double().cpu().flatten(1)
        scores["level"] = flat.mean(1).numpy()
        if flat.shape[1] > 1:
            scores["contrast"] = flat.std(1).numpy()
    return scores


@dataclass(frozen=True)
class Reference:
    """The scores of the calibration examples, counted in bins.

    Args:
        edges: for each score, the limits between bins.
        counts: for each score, the number of calibration examples in each bin.

    """

    edges: Mapping[str, Sequence[float]]
    counts: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, scores: Mapping[str, NDArray[np.float64]]) -> Reference:
        """Bins of about equal counts. P-values stay exact: equal bins are ties, and ties are broken at random."""
        edges = {
            name: np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1])) for name, values in scores.items()
        }
        counts = {
            name: np.bincount(np.searchsorted(edges[name], values, side="right"), minlength=len(edges[name]) + 1)
            for name, values in scores.items()
        }
        return cls(
            {name: values.tolist() for name, values in edges.items()},
            {name: values.tolist() for name, values in counts.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """The reference as plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Any) -> Reference:
        """The reference that `to_dict` described.

        Raises:
            RunError: the description is not one of ours.

        """
        try:
            made = cls(
                {name: [float(value) for value in values] for name, values in plain["edges"].items()},
                {name: [int(value) for value in values] for name, values in plain["counts"].items()},
            )
            fits = all(
                len(made.counts[name]) == len(values) + 1
                and min(made.counts[name]) >= 0
                and max(made.counts[name]) < _MOST_COUNTED
                for name, values in made.edges.items()
            )
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
            raise RunError(f"the saved reference of inputs cannot be read: {first_line(problem)}") from None
        if not fits:
            raise RunError("the saved reference of inputs cannot be read: edges and counts do not fit")
        return made


class ShiftMonitor:
    """Evidence that the inputs have changed since the calibration, input by input.

    Args:
        reference: the scores of the calibration examples.
        risk: the probability of a false alarm, ever.
        seed: of the numbers that break ties.

    """

    def __init__(self, reference: Reference, risk: float = RISK, seed: int = 0) -> None:
        self.risk = risk
        self.inputs = 0
        self.lapsed_at: int | None = None
        self._edges = {name: np.asarray(values) for name, values in reference.edges.items()}
        self._counts = {name: np.asarray(values, dtype=np.int64) for name, values in reference.counts.items()}
        self._random = np.random.default_rng(seed)
        # At stake by score, by bet on p or on its distance from the middle, and by direction, for a capital of 1 each.
        self._at_stake = np.full((len(self._edges), 2, len(_BETS)), 1 - _held_back(0))

    @property
    def evidence(self) -> float:
        """The capital M: how many times likelier a change has become; 1 at the start."""
        return float(self._at_stake.mean()) + _held_back(self.lapsed_at or self.inputs)

    @property
    def lapsed(self) -> bool:
        """Whether the evidence has reached `1 / risk`; that stays so."""
        return self.lapsed_at is not None

    def add(self, scores: Mapping[str, NDArray[np.float64]]) -> None:
        """Learn the scores of new inputs, in their order.

        Args:
            scores: of each input, by name, as `input_scores` makes them.

        """
        names = [name for name in self._edges if name in scores]
        count = len(scores[names[0]]) if names else 0
        bins = [np.searchsorted(self._edges[name], scores[name], side="right") for name in names]
        rows = [list(self._edges).index(name) for name in names]
        for number in range(count):
            self.inputs += 1
            if self.lapsed:
                continue  # capital beyond the limit changes nothing, and would overflow
            self._at_stake += _held_back(self.inputs - 1) - _held_back(self.inputs)
            for row, name, places in zip(rows, names, bins, strict=True):
                p = self._p_value(self._counts[name], int(places[number]))
                self._bet(row, 0, p)
                self._bet(row, 1, abs(2 * p - 1))
            if self.evidence >= 1 / self.risk:
                self.lapsed_at = self.inputs

    def _p_value(self, counts: NDArray[np.int64], place: int) -> float:
        """The randomised rank of a new score among all before it, which it joins."""
        counts[place] += 1
        below = int(counts[:place].sum())
        return (below + float(self._random.random()) * int(counts[place])) / int(counts.sum())

    def _bet(self, row: int, kind: int, p: float) -> None:
        self._at_stake[row, kind] *= 1 + _BETS * (p - 0.5)


def _held_back(inputs: int) -> float:
    """The share of the capital that has not been put at stake."""
    return 0.5 / math.sqrt(1 + inputs / _PATIENCE)


def reference_of(guarantees: Mapping[str, Any]) -> Reference | None:
    """The reference that is saved with a run; None where there is none."""
    saved = guarantees.get("reference")
    if saved is None:
        return None
    return Reference.from_dict(saved.get("scores") if isinstance(saved, dict) else None)


def certainty_of(predictive: Any) -> NDArray[np.float64]:
    """The certainty that is watched: the confidence, or minus the standard deviation; the mean over positions."""
    values = predictive.confidence if predictive.kind == "classification" else -predictive.std
    whole: Tensor = torch.as_tensor(values).double().cpu()
    return whole.reshape(len(whole), -1).mean(1).numpy()


def odds(evidence: float) -> str:
    """Evidence in words."""
    return f"{evidence:.3g} : 1" if math.isfinite(evidence) else "beyond measure"
