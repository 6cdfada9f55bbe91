"""The cells of the experiment: which there are, in which order they are worth computing, and how one is computed.

A cell is one fit, or one comparison with HMC. It depends on nothing but its name, but for the tuned fits, which wait
for the search. What tells most comes first: one seed of everything, then more seeds, then the search.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesify.methods.cards import CARDS
from bayesify_studies.experiments.defaults import baselines, distances, fits, posteriors
from bayesify_studies.experiments.defaults.problems import PROBLEMS, TABLES, Problem
from bayesify_studies.experiments.defaults.search import DEFAULT, TRIES, settings_of

PARTS = ("default", "baseline", "posterior", "distance", "try", "tuned")
METHODS = (*CARDS, "auto")
# A fit of these takes a minute or more: their further seeds come late.
SLOW = ("sgld", "sghmc", "hmc")
# Fits of these take longest.
COSTLY = ("digits", "mnist", "fashion-mnist", "clinc", "naval", "power", "protein")
# Seconds of one process.
LIMITS = {"default": 120.0, "baseline": 120.0, "posterior": 200.0, "distance": 600.0, "try": 120.0, "tuned": 200.0}
LIMIT_OF_AUTO = 400.0
# Distances of the methods that have goals, without the others.
GOALS = "goals"
FINE, REFUSED, UNAFFORDABLE, FAILED = "fine", "refused", "unaffordable", "failed"

Lines = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One fit: the part of the experiment, the problem, the method, the seed, and the settings of a search."""

    part: str
    problem: str
    method: str
    seed: int
    setting: str = DEFAULT

    @property
    def key(self) -> str:
        """The name of its line in the file of results."""
        return f"{self.part}|{self.problem}|{self.method}|{self.seed}|{self.setting}"

    @property
    def limit(self) -> float:
        """The seconds after which it is given up as unaffordable."""
        return LIMIT_OF_AUTO if self.method == "auto" else LIMITS[self.part]

    @staticmethod
    def of(key: str) -> Cell:
        """The cell of a key."""
        part, problem, method, seed, setting = key.split("|")
        return Cell(part, problem, method, int(seed), setting)


@dataclass(frozen=True)
class Size:
    """How much is computed: problems, methods, and the number of seeds of each part."""

    problems: tuple[str, ...] = tuple(PROBLEMS)
    methods: tuple[str, ...] = METHODS
    seeds: int = 5
    tuned_seeds: int = 3
    distance_seeds: int = 20
    splits: int = 20
    parts: tuple[str, ...] = PARTS


def compute(cell: Cell) -> dict[str, Any]:
    """The scores of a cell, as plain values."""
    if cell.part == "baseline":
        return baselines.baseline(cell.problem, cell.method, cell.seed)
    if cell.part == "posterior":
        return posteriors.compared(posterior_folder(), cell.problem, cell.method)
    if cell.part == "distance":
        names = distances.OF_GOALS if cell.method == GOALS else distances.COMPARED
        return distances.compared(cell.problem, cell.seed, names)
    of = PROBLEMS[cell.problem]
    if cell.method == "auto":
        return fits.fitted(cell.problem, cell.method, cell.seed)
    rows = len(of.make(cell.seed).x_train)
    settings = settings_of(cell.setting, of, cell.method, rows)
    return fits.fitted(cell.problem, cell.method, cell.seed, settings, validate=cell.part == "try")


def missing(lines: Lines, size: Size) -> list[Cell]:
    """The cells that can be computed now and are not in the file, the most telling first.

    Args:
        lines: what was computed, by key.
        size: how much is asked for.

    Returns:
        The cells.

    """
    wanted = (cell for cell in _in_order(lines, size) if cell.part in size.parts and cell.key not in lines)
    return list(dict.fromkeys(cell for cell in wanted if not hopeless(cell, lines)))


def winner(lines: Lines, problem: str, method: str) -> str | None:
    """The best of a search by validation NLL; None where a try is not there yet."""
    of = PROBLEMS[problem]
    found: dict[str, float] = {}
    for name in _tries(of, method):
        line = lines.get(Cell("try", problem, method, 0, name).key)
        if line is None:
            return None
        if line["status"] == FINE and line["nll"] is not None:
            found[name] = line["nll"]
    return min(found, key=lambda name: found[name]) if found else DEFAULT


def posterior_folder() -> Path:
    """The folder of the reference posteriors."""
    return Path(os.environ.get("BAYESIFY_DATA", ".")) / "posteriordb"


def _in_order(lines: Lines, size: Size) -> Iterator[Cell]:
    fast = [method for method in size.methods if method not in SLOW]
    slow = [method for method in size.methods if method in SLOW]
    quick = replace(size, problems=tuple(name for name in size.problems if name not in COSTLY))
    yield from _defaults(size, fast, [0])
    yield from _defaults(quick, slow, [0])
    yield from _distances("all", range(min(distances.SEEDS_OF_ALL, size.distance_seeds)))
    yield from _defaults(size, fast, range(1, min(2, size.seeds)))
    yield from (Cell("posterior", name, method, 0) for name in _posteriors() for method in posteriors.METHODS)
    yield from _distances(GOALS, range(distances.SEEDS_OF_ALL, size.distance_seeds))
    yield from _searched(lines, quick, fast, range(min(1, size.tuned_seeds)))
    yield from _defaults(size, fast, range(2, min(3, size.seeds)))
    yield from _defaults(size, slow, [0])
    yield from _defaults(size, fast, range(3, size.seeds))
    yield from _searched(lines, size, fast, range(size.tuned_seeds))
    yield from _defaults(quick, slow, range(1, min(3, size.seeds)))
    yield from _searched(lines, size, slow, range(size.tuned_seeds))
    if "auto" in size.methods:
        for seed in range(size.seeds, size.splits):
            tables = [name for name in TABLES if name in size.problems and seed < PROBLEMS[name].splits]
            yield from (Cell("default", name, "auto", seed) for name in tables)
            yield from (Cell("baseline", name, "boosting", seed) for name in tables)
    yield from _defaults(size, slow, range(1, size.seeds))


def _distances(which: str, seeds: Iterable[int]) -> Iterator[Cell]:
    return (Cell("distance", data, which, seed) for seed in seeds for data in distances.DATA)


def _defaults(size: Size, methods: Iterable[str], seeds: Iterable[int]) -> Iterator[Cell]:
    methods = list(methods)
    for seed in seeds:
        for problem in size.problems:
            yield from (Cell("default", problem, method, seed) for method in methods)
            if PROBLEMS[problem].table and methods:
                names = baselines.BASELINES if PROBLEMS[problem].kind == "regression" else baselines.OF_CLASSES
                yield from (Cell("baseline", problem, name, seed) for name in names)


def _searched(lines: Lines, size: Size, methods: Iterable[str], seeds: Iterable[int]) -> Iterator[Cell]:
    """The tries of the search, each pair's followed by its best where that is no default; cheap problems first."""
    problems = sorted(size.problems, key=lambda name: name in COSTLY)
    pairs = [(problem, method) for problem in problems for method in methods if method != "auto"]
    for problem, method in pairs:
        best = winner(lines, problem, method)
        if best is None:
            yield from (Cell("try", problem, method, 0, name) for name in _tries_of(problem, method))
        elif best != DEFAULT:
            yield from (Cell("tuned", problem, method, seed, best) for seed in seeds)


def _tries_of(problem: str, method: str) -> list[str]:
    return _tries(PROBLEMS[problem], method)


def _tries(problem: Problem, method: str) -> list[str]:
    return [name for name in TRIES if settings_of(name, problem, method, 1000) is not None]


def hopeless(cell: Cell, lines: Lines) -> bool:
    """Whether the first seed's fit at the defaults was refused or took too long: other seeds and tries would too."""
    if cell.part not in {"default", "try", "tuned", "baseline"}:
        return False
    first = lines.get(Cell("baseline" if cell.part == "baseline" else "default", cell.problem, cell.method, 0).key)
    return first is not None and first["status"] in {REFUSED, UNAFFORDABLE}


def _posteriors() -> list[str]:
    return posteriors.names_in(posterior_folder())
