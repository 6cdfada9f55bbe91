"""The goals that Auto and the methods are measured by: HMC's answers, published scores, and reference posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from bayesify.methods.approximation import MEASURED
from bayesify_studies.experiments.defaults.cells import FINE, Cell, Lines
from bayesify_studies.experiments.defaults.distances import ANNEALED, COMPARED, DATA
from bayesify_studies.experiments.defaults.problems import TABLES
from bayesify_studies.experiments.defaults.published import BEST
from bayesify_studies.experiments.defaults.verdicts import defaults_of, over_boosting

INTERVALS = (0.87, 0.93)
# Accuracy and total variation within which a method counts as near HMC.
NEAR = {"auto": (0.02, 0.03), ANNEALED: (0.05, 0.05)}
NEAR_OTHERS = (0.05, 0.05)
# Largest errors of means, in standard deviations, and of standard deviations, as a share.
OF_POSTERIORS = {"hmc": (0.1, 0.05), "full_rank": (0.1, 0.10)}


@dataclass(frozen=True)
class TableOfAuto:
    """Auto on a table of numbers, over its splits."""

    table: str
    used: str
    splits: int
    nll: float
    error: float | None
    coverage: float
    over_boosting: float | None
    warned: int
    seconds: float

    @property
    def as_published(self) -> bool | None:
        """Whether the NLL is within one standard error of the best published row; None where there is none."""
        if self.table not in BEST or self.error is None:
            return None
        return self.nll <= BEST[self.table] + self.error

    @property
    def covers(self) -> bool:
        """Whether 90% intervals hold 87 to 93%."""
        return INTERVALS[0] <= self.coverage <= INTERVALS[1]


@dataclass(frozen=True)
class FromHMC:
    """A method's distance from HMC over the seeds of a data set."""

    data: str
    method: str
    seeds: int
    near: int
    flagged: int
    noted: int
    unflagged: int
    worst_accuracy: float
    total_variation: float
    worst_variation: float


def tables_of_auto(lines: Lines) -> list[TableOfAuto]:
    """The nine tables that Auto has scores for."""
    found = []
    for table in TABLES:
        fits = list(defaults_of(lines, table, "auto").values())
        if not fits or any(fit["nll"] is None for fit in fits):
            continue
        nll = [fit["nll"] for fit in fits]
        found.append(
            TableOfAuto(
                table,
                fits[0]["used"],
                len(fits),
                fmean(nll),
                stdev(nll) / math.sqrt(len(nll)) if len(nll) > 1 else None,
                sum(fit["coverage"] * fit["tested"] for fit in fits) / sum(fit["tested"] for fit in fits),
                over_boosting(lines, table, "auto"),
                sum(bool(fit["warnings"]) for fit in fits),
                fmean(fit["cpu_seconds"] for fit in fits),
            )
        )
    return found


def from_hmc(lines: Lines) -> list[FromHMC]:
    """Every method's distance from HMC on moons and circles.

    A fit that stopped with an error is far, and has flagged itself.
    """
    found = []
    for data in DATA:
        seeds = [line for key, line in lines.items() if _of_distance(key, data) and line["status"] == FINE]
        for method in COMPARED if seeds else ():
            fits = [(line["methods"][method], line["hmc_accuracy"]) for line in seeds if method in line["methods"]]
            far = [fit for fit, accuracy in fits if not _near(method, fit, accuracy)]
            scored = [(fit, accuracy) for fit, accuracy in fits if "error" not in fit]
            flagged = sum(bool(fit["warnings"]) for fit in far)
            # The note depends on nothing but the method and the size of the network and the data.
            noted = sum(method in MEASURED and not fit["warnings"] for fit in far)
            found.append(
                FromHMC(
                    data,
                    method,
                    len(fits),
                    len(fits) - len(far),
                    flagged,
                    noted,
                    len(far) - flagged - noted,
                    max((abs(fit["accuracy"] - accuracy) for fit, accuracy in scored), default=math.nan),
                    fmean([fit["total_variation"] for fit, _ in scored] or [math.nan]),
                    max((fit["total_variation"] for fit, _ in scored), default=math.nan),
                )
            )
    return found


def posteriors_of(lines: Lines) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The errors against reference posteriors, by method and posterior."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, line in lines.items():
        cell = Cell.of(key)
        if cell.part == "posterior" and line["status"] == FINE:
            found.setdefault(cell.method, {})[cell.problem] = line
    return found


def reached(method: str, errors: Mapping[str, Any]) -> bool:
    """Whether the errors of a posterior are within their bounds."""
    mean, sd = OF_POSTERIORS[method]
    return bool(errors["mean"] <= mean and errors["sd"] <= sd)


def _of_distance(key: str, data: str) -> bool:
    cell = Cell.of(key)
    return cell.part == "distance" and cell.problem == data


def _near(method: str, fit: Mapping[str, Any], accuracy: float) -> bool:
    if "error" in fit:
        return False
    of_accuracy, of_variation = NEAR.get(method, NEAR_OTHERS)
    return bool(abs(fit["accuracy"] - accuracy) <= of_accuracy and fit["total_variation"] <= of_variation)
