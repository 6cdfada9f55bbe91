"""Means and standard errors over splits, and where a mean stands beside the best published row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from bayesify_studies.experiments.defaults.cells import Lines
from bayesify_studies.experiments.defaults.published import BEST, best_row
from bayesify_studies.experiments.defaults.verdicts import defaults_of

SCORES = ("nll", "rmse", "crps", "coverage")
AHEAD, LEVEL, BEHIND, UNSETTLED = "ahead", "level", "behind", "one split"


@dataclass(frozen=True)
class Score:
    """A score of a method on a table: its mean, its standard error (None for one split) and the number of splits."""

    mean: float
    error: float | None
    splits: int

    def text(self, digits: int = 3) -> str:
        """As the page writes it."""
        shown = f"{self.mean:.{digits}g}" if abs(self.mean) < 10 ** (1 - digits) else f"{self.mean:.{digits}f}"
        if self.error is None:
            return shown
        small = self.error < 10**-digits
        return f"{shown} ± {self.error:.2g}" if small else f"{shown} ± {self.error:.{digits}f}"


def estimate(values: Iterable[float | None]) -> Score | None:
    """The mean over splits; None without values. A score that is not finite makes the mean infinite."""
    found = [math.inf if value is None else value for value in values]
    if not found:
        return None
    finite = len(found) > 1 and all(map(math.isfinite, found))
    return Score(fmean(found), stdev(found) / math.sqrt(len(found)) if finite else None, len(found))


def score_of(lines: Lines, table: str, method: str, name: str, part: str = "default") -> Score | None:
    """A score of a method on a table, over the splits that have it."""
    return estimate(fit[name] for fit in defaults_of(lines, table, method, part).values() if name in fit)


def coverage_of(lines: Lines, table: str, method: str, part: str = "default") -> float | None:
    """The share of all test rows that lie in 90% intervals."""
    fits = [fit for fit in defaults_of(lines, table, method, part).values() if "coverage" in fit]
    if not fits:
        return None
    inside: float = sum(fit["coverage"] * fit["tested"] for fit in fits)
    return inside / float(sum(fit["tested"] for fit in fits))


@dataclass(frozen=True)
class Scores:
    """Scores over the fits of a file, or those of an earlier page where they have more splits than the file.

    Args:
        lines: the fits by key.
        earlier: the scores of the earlier page, by table and method, as its JSON has them.

    """

    lines: Lines
    earlier: Mapping[str, Any] = field(default_factory=dict)

    def of(self, table: str, method: str, name: str, part: str = "default") -> Score | None:
        """A score of a method on a table."""
        own, there = score_of(self.lines, table, method, name, part), self._earlier(table, method, name)
        return there if there is not None and (own is None or there.splits > own.splits) else own

    def coverage(self, table: str, method: str, part: str = "default") -> float | None:
        """The share of all test rows that lie in 90% intervals."""
        if self.more(table, method, part) > 0 and "coverage" in self.earlier[table][method]:
            return float(self.earlier[table][method]["coverage"])
        return coverage_of(self.lines, table, method, part)

    def more(self, table: str, method: str, part: str = "default") -> int:
        """How many splits the earlier page had more than the file."""
        there = self._earlier(table, method, "rmse")
        fits = defaults_of(self.lines, table, method, part)
        return max(0, there.splits - len(fits)) if there is not None else 0

    def _earlier(self, table: str, method: str, name: str) -> Score | None:
        found = self.earlier.get(table, {}).get(method, {}).get(name)
        if found is None:
            return None
        mean = math.inf if found["mean"] is None else float(found["mean"])
        return Score(mean, found["standard_error"], int(found["splits"]))


def standing(score: Score, table: str) -> str:
    """Where a mean NLL stands: ahead of or behind the best published row by more than one standard error, or level."""
    if score.error is None:
        return UNSETTLED
    above = score.mean - BEST[table]
    return LEVEL if abs(above) <= score.error else BEHIND if above > 0 else AHEAD


def said(score: Score, table: str) -> str:
    """The same as a sentence."""
    name, best = best_row(table)
    above = score.mean - best
    how = standing(score, table)
    if how == UNSETTLED:
        return f"one split, {abs(above):.2f} nats {'above' if above > 0 else 'below'} {name}"
    if how == LEVEL:
        return f"level with {name}: {above:+.2f} nats, within one standard error"
    return f"{'behind' if how == BEHIND else 'ahead of'} {name} by {abs(above):.2f} nats"
