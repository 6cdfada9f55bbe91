"""The reference of a comparison: HMC, sampled until its chains agree, and its predictions on the scored inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesify.evaluation import score
from bayesify.evaluation.predictive_distance import distance, halves
from bayesify.methods import HMC, Method
from bayesify.predictive import Predictive
from bayesify.workflows.prepare import PreparedData

# At most this many times the planned number of samples is drawn to bring R-hat below its bound.
LONGEST = 4
# An even selection of the reference's draws: more would not fit in memory, and the floor shows the error it leaves.
MOST_DRAWS = 20_000


def sample_until_converged(method: HMC, prepared: PreparedData, run: Path, planned: int, *, progress: bool) -> None:
    """Sample further until the chains agree on their predictions, up to four times the planned number of samples.

    Args:
        method: HMC after its planned samples.
        prepared: its data.
        run: its folder.
        planned: samples of each chain.
        progress: show a progress bar.

    """
    while not method.diagnose().converged and method.plan.samples < LONGEST * planned:
        method.resume(prepared.train, run, extend=planned, progress=progress)


@dataclass(frozen=True)
class Truth:
    """HMC's predictives on the test inputs and around the data: of all chains, and of either half of them."""

    test: tuple[Predictive, Predictive, Predictive]
    around: tuple[Predictive, Predictive, Predictive] | None

    @staticmethod
    def of(method: HMC, prepared: PreparedData) -> Truth:
        wide = surroundings(prepared.train[0])
        return Truth(
            halves(method, prepared.test[0], draws=MOST_DRAWS),
            None if wide is None else halves(method, wide, draws=MOST_DRAWS),
        )

    def scores(self, method: HMC, prepared: PreparedData, draws: int) -> dict[str, Any]:
        """The scores of HMC: its quality with as many draws as the others, its diagnosis, and the floor."""
        some = Predictive(self.test[0].outputs[:draws], self.test[0].likelihood.of_draws(slice(draws)))
        around = None if self.around is None else distance(self.around[1], self.around[2]).to_dict()
        return {
            "quality": _quality(some, prepared.test[1]),
            "distance": distance(self.test[1], self.test[2]).to_dict(),
            "around": around,
            "diagnosis": method.diagnose().to_dict(),
        }

    def distances(self, method: Method, prepared: PreparedData, draws: int, seed: int) -> dict[str, Any]:
        """The quality of a method, and its distance from HMC."""
        predictive = method.predict(prepared.test[0], draws=draws, seed=seed)
        around = None
        if self.around is not None:
            wide = method.predict(surroundings(prepared.train[0]), draws=draws, seed=seed)
            around = distance(wide, self.around[0]).to_dict()
        return {
            "quality": _quality(predictive, prepared.test[1]),
            "distance": distance(predictive, self.test[0]).to_dict(),
            "around": around,
        }


def _quality(predictive: Predictive, targets: Tensor) -> dict[str, Any]:
    names = ("accuracy", "rmse", "nll", "ece", "crps", "coverage_95", "aleatoric", "epistemic", "draws")
    scores = score(predictive, targets).to_dict()
    return {name: scores[name] for name in names if scores[name] is not None}


def surroundings(x: Tensor) -> Tensor | None:
    """A grid of inputs around the data and beyond it, where a method should become unsure; for one or two inputs."""
    if x.dim() != 2 or x.shape[1] not in {1, 2}:
        return None
    low, high = x.amin(0), x.amax(0)
    reach, count = 0.6 * (high - low), 101 if x.shape[1] == 1 else 31
    sides = [
        torch.linspace(float(low[i] - reach[i]), float(high[i] + reach[i]), count).to(x) for i in range(x.shape[1])
    ]
    return torch.cartesian_prod(*sides).reshape(-1, x.shape[1])
