"""The goals for speed, and what measurements say of each: reached, or missed by how much.

A goal is a number that a measured ratio (or time) must not exceed. Measurements are kept as `{device: {"machine": ...,
"parts": {name: result}}}`; a goal names the device, the part and the number in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Measured = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """What must not exceed `limit`, and where it is found."""

    what: str
    limit: float
    device: str
    part: str
    key: str = "ratio"
    spread: str = "ratio_quartiles"
    unit: str = ""


@dataclass(frozen=True)
class Verdict:
    """A goal, what was measured (None where nothing was), and the commit of the code, where it was recorded."""

    goal: Goal
    value: float | None
    quartiles: tuple[float, float] | None = None
    commit: str | None = None

    @property
    def reached(self) -> bool | None:
        return None if self.value is None else self.value <= self.goal.limit

    @property
    def words(self) -> str:
        """`reached`, `missed by 12%`, or `not measured`."""
        if self.value is None:
            return "not measured"
        return "reached" if self.reached else f"missed by {100 * (self.value / self.goal.limit - 1):.0f}%"


_COMPILED = {"key": "ratio_to_compiled_plain", "spread": "ratio_to_compiled_plain_quartiles"}
_PRIORS = {"mixture": "scale mixture", "normal": "normal prior"}
GOALS = (
    *(Goal(f"training step / plain step, {said}", 1.5, "cpu", f"step/{name}") for name, said in _PRIORS.items()),
    *(
        Goal(f"training step / compiled plain step, {said}", 1.25, "cpu", f"step/{name}", **_COMPILED)
        for name, said in _PRIORS.items()
    ),
    *(
        Goal(f"training step / plain step at 1200 units, {said}", 1.5, "cpu", f"step/1200-{name}")
        for name, said in _PRIORS.items()
    ),
    *(
        Goal(f"training step / plain step, study C's CNN, {said}", 1.3, "cpu", f"step/cnn-{name}")
        for name, said in _PRIORS.items()
    ),
    *(
        Goal(f"training step / plain step, local estimator, {said}", 2.5, "cpu", f"step/local-{name}")
        for name, said in _PRIORS.items()
    ),
    Goal("predictions of 10,000 images with 100 draws / 100 plain passes", 1.05, "cpu", "predict"),
    Goal(
        "predictions by moments / one plain pass",
        3.5,
        "cpu",
        "predict",
        "ratio_of_moments",
        "ratio_of_moments_quartiles",
    ),
    Goal(
        "predictions by moments, variances in bfloat16 where that is faster (precision auto) / one plain pass",
        3.5,
        "cpu",
        "predict",
        "ratio_of_moments_auto",
        "ratio_of_moments_auto_quartiles",
    ),
    Goal(
        "GaussianLogits with 1000 samples, training step / plain step, the worst of four",
        1.3,
        "cpu",
        "predict",
        "ratio_of_gaussian_logits",
        "ratio_of_gaussian_logits_quartiles",
    ),
    Goal("ensemble of 5 as a fleet / 5 separate trainings", 0.9, "cpu", "fleet/ensemble"),
    Goal("bytes of tensors held between steps / plain training with Adam", 2.2, "cpu", "memory", spread=""),
    Goal("bytes of tensors at the peak of a step / plain training with Adam", 2.2, "cpu", "memory", "peak_ratio", ""),
    Goal("step of SGLD, fused / plain step", 1.3, "cpu", "samplers", "sgld_ratio", ""),
    Goal("step of SGHMC, fused / plain step", 1.3, "cpu", "samplers", "sghmc_ratio", ""),
    Goal("first BayesianClassifier fit of a process, 100 rows", 1.0, "cpu", "waiting/fits", "first_fit_100", "", "s"),
    Goal("a later fit, 100 rows", 1.0, "cpu", "waiting/fits", "fit_100", "", "s"),
    Goal("a later fit, 1,000 rows", 2.0, "cpu", "waiting/fits", "fit_1000", "", "s"),
    Goal("first output of the slowest command, at a terminal", 2.0, "cpu", "waiting/commands", "seconds", "", "s"),
    Goal("first output of the slowest command, in a log", 2.0, "cpu", "waiting/commands", "log_seconds", "", "s"),
    *(
        Goal(f"training step / plain step, both captured in graphs, {said}", 1.3, "cuda", f"graphs/{name}")
        for name, said in _PRIORS.items()
    ),
    *(
        Goal(
            f"training step / plain step, both captured in graphs, 1200 units, {said}",
            1.3,
            "cuda",
            f"graphs/1200-{name}",
        )
        for name, said in _PRIORS.items()
    ),
    Goal("600 epochs of MNIST's size at 400 units", 25.0, "cuda", "epochs/400", "seconds_of_600_epochs", "", "s"),
    Goal(
        "324 settings x 600 epochs with 1, 2, 5 and 10 draws, computed from the time of a step",
        45.0,
        "cuda",
        "fleet/grid",
        "minutes",
        "",
        "min",
    ),
    Goal("ensemble of 5 as a fleet / 5 separate trainings", 0.35, "cuda", "fleet/ensemble"),
    Goal("bytes of tensors held between steps / plain training with Adam", 2.2, "cuda", "memory", spread=""),
)


def judge(measured: Measured, goals: tuple[Goal, ...] = GOALS) -> list[Verdict]:
    """Each goal with what was found for it."""
    return [_judge(measured, goal) for goal in goals]


def _judge(measured: Measured, goal: Goal) -> Verdict:
    result = measured.get(goal.device, {}).get("parts", {}).get(goal.part) or {}
    value = result.get(goal.key)
    quartiles = result.get(goal.spread) if goal.spread else None
    edges = None if quartiles is None else (quartiles[0], quartiles[1])
    return Verdict(goal, value, edges, result.get("commit"))
