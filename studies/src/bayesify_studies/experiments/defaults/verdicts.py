"""Whether defaults work: against the same method tuned, against the best fit of a problem, and against boosting.

A fit failed, is fine, or is between the two, by the definition of docs/warnings.md: its share of what the best network
of the same problem and seed gains over a constant prediction. The RMSE of a failure exceeds its bound by more than two
standard errors of the test rows: 77 rows cannot tell more. A failure is flagged if the method warned or stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from bayesify_studies.experiments.defaults.cells import FAILED, FINE, Cell, Lines, winner
from bayesify_studies.experiments.defaults.problems import PROBLEMS
from bayesify_studies.experiments.defaults.search import DEFAULT

ACCURACY, RMSE, NLL = 0.97, 1.03, 0.05
OF_BOOSTING = 1.1
# From the first of each pair a fit is fine, beyond the second it failed (docs/warnings.md).
GAIN, INFORMATION, FACTOR = (0.9, 0.7), (0.8, 0.6), (1.2, 1.4)
# Standard errors of the mean squared error by which a failure must exceed its bound.
CERTAIN = 2.0


@dataclass(frozen=True)
class AgainstTuned:
    """A method at its defaults and the same method tuned: means over the seeds that both have."""

    problem: str
    method: str
    best: str
    seeds: int
    default: Mapping[str, float]
    tuned: Mapping[str, float]

    @property
    def misses(self) -> list[str]:
        """What the defaults miss: `accuracy`, `rmse`, `nll`."""
        found = []
        if "accuracy" in self.default and self.default["accuracy"] < ACCURACY * self.tuned["accuracy"]:
            found.append("accuracy")
        if "rmse" in self.default and self.default["rmse"] > RMSE * self.tuned["rmse"]:
            found.append("rmse")
        if self.default["nll"] > self.tuned["nll"] + NLL:
            found.append("nll")
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**asdict(self), "misses": self.misses}


@dataclass(frozen=True)
class Judged:
    """A fit at the defaults: `fine`, `between` or `failed`, and the warnings it gave."""

    problem: str
    method: str
    seed: int
    state: str
    warnings: tuple[str, ...]


def defaults_of(lines: Lines, problem: str, method: str, part: str = "default") -> dict[int, Mapping[str, Any]]:
    """The finished fits of a method at its defaults by seed."""
    found = {}
    for key, line in lines.items():
        cell = Cell.of(key)
        if (cell.part, cell.problem, cell.method) == (part, problem, method) and line["status"] == FINE:
            found[cell.seed] = line
    return dict(sorted(found.items()))


def mean_of(fits: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """The mean of a score; None where no fit has it, and infinite where one is not finite."""
    values = [fit[name] for fit in fits if name in fit]
    if not values:
        return None
    return fmean(float("inf") if value is None else value for value in values)


def against_tuned(lines: Lines) -> list[AgainstTuned]:
    """Every method and problem whose search is complete, with the tuned fits that it needs."""
    found = []
    for problem, method in _searched(lines):
        best = winner(lines, problem, method)
        default = defaults_of(lines, problem, method)
        if best is None or not default:
            continue
        if best == DEFAULT:
            scores = _means(default.values())
            found.append(AgainstTuned(problem, method, best, len(default), scores, scores))
            continue
        tuned = {
            Cell.of(key).seed: line
            for key, line in lines.items()
            if key.startswith(f"tuned|{problem}|{method}|") and line["status"] == FINE and Cell.of(key).setting == best
        }
        both = sorted(set(default) & set(tuned))
        if both:
            first, second = _means(default[seed] for seed in both), _means(tuned[seed] for seed in both)
            found.append(AgainstTuned(problem, method, best, len(both), first, second))
    return found


def judged(lines: Lines) -> list[Judged]:
    """Every fit at the defaults, judged against the best network of its problem and seed."""
    of_networks = {key: line for key, line in lines.items() if key.startswith(("default|", "tuned|"))}
    best: dict[tuple[str, int], dict[str, float]] = {}
    for key, line in of_networks.items():
        cell = Cell.of(key)
        gains = _gains(line)
        if gains is not None:
            old = best.setdefault((cell.problem, cell.seed), dict(gains))
            # A lower RMSE is better, a larger gain of any other kind.
            old.update({name: (min if name == "rmse" else max)(old[name], value) for name, value in gains.items()})
    found = []
    for key, line in of_networks.items():
        cell = Cell.of(key)
        if cell.part == "default" and line["status"] in {FINE, FAILED}:
            state = _state(line, best.get((cell.problem, cell.seed), {}))
            found.append(Judged(cell.problem, cell.method, cell.seed, state, tuple(line["warnings"])))
    return found


def over_boosting(lines: Lines, problem: str, method: str) -> float | None:
    """The RMSE of a method over that of boosting, means over the seeds that both have."""
    ours, theirs = defaults_of(lines, problem, method), defaults_of(lines, problem, "boosting", "baseline")
    both = sorted(set(ours) & set(theirs))
    if not both or PROBLEMS[problem].kind != "regression":
        return None
    return fmean(ours[seed]["rmse"] for seed in both) / fmean(theirs[seed]["rmse"] for seed in both)


def _searched(lines: Lines) -> list[tuple[str, str]]:
    cells = (Cell.of(key) for key in lines)
    return list(dict.fromkeys((cell.problem, cell.method) for cell in cells if cell.part == "try"))


def _means(fits: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    fits = list(fits)
    means = {name: mean_of(fits, name) for name in ("accuracy", "rmse", "nll", "ece", "coverage")}
    return {name: value for name, value in means.items() if value is not None}


def _gains(line: Mapping[str, Any]) -> dict[str, float] | None:
    """What a fit gains over a constant; None where it has no finite scores."""
    if line["status"] != FINE or line["nll"] is None:
        return None
    information = line["constant_nll"] - line["nll"]
    if "accuracy" in line:
        return {"gain": line["accuracy"] - line["constant_accuracy"], "information": information}
    if line["rmse"] is None:
        return None
    return {"gain": 1 - (line["rmse"] / line["constant_rmse"]) ** 2, "information": information, "rmse": line["rmse"]}


def _least_rmse(line: Mapping[str, Any]) -> float:
    """The RMSE, less what the number of test rows leaves open."""
    square = float(line["rmse"]) ** 2
    # Earlier cells have no standard error; that of normal errors is the smallest of the usual ones.
    error = line.get("mse_error") or square * math.sqrt(2 / line["tested"])
    return math.sqrt(max(square - CERTAIN * error, 0.0))


def _state(line: Mapping[str, Any], best: Mapping[str, float]) -> str:
    gains = _gains(line)
    if gains is None or gains["information"] <= 0:
        return FAILED
    shares = [(gains["gain"] / best["gain"] if best["gain"] > 0 else 1.0, *GAIN)]
    if "rmse" in gains:
        if _least_rmse(line) > FACTOR[1] * best["rmse"]:
            return FAILED
        shares.append((-gains["rmse"] / best["rmse"], -FACTOR[0], -math.inf))
    else:
        shares.append((gains["information"] / best["information"], *INFORMATION))
    if any(share < failed for share, _, failed in shares):
        return FAILED
    return FINE if all(share >= fine for share, fine, _ in shares) else "between"
