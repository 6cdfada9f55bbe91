"""Which fits the experiment has: every published split of Auto first, then the other methods, split by split."""

from __future__ import annotations

from collections.abc import Iterator

from bayesify_studies.experiments.defaults.cells import SLOW, Cell, Lines, Size, hopeless
from bayesify_studies.experiments.defaults.problems import PROBLEMS

BASELINES = ("boosting", "gaussian-process", "ngboost")


def missing(lines: Lines, size: Size) -> list[Cell]:
    """The fits that the file lacks, the most important first.

    Args:
        lines: what was computed, by key.
        size: the tables, the methods and the number of splits.

    Returns:
        The cells.

    """
    return [cell for cell in wanted(size) if cell.key not in lines and not hopeless(cell, lines)]


def wanted(size: Size) -> list[Cell]:
    """All fits that a size asks for, the most important first."""
    return list(dict.fromkeys(_in_order(size)))


def belongs(key: str, size: Size) -> bool:
    """Whether a line of a file is a fit of this experiment; files of `defaults` have others too."""
    cell = Cell.of(key)
    if cell.problem not in size.problems or not 0 <= cell.seed < _splits(cell.problem, size):
        return False
    return (cell.part == "default" and cell.method in size.methods) or (
        cell.part == "baseline" and cell.method in BASELINES
    )


def _in_order(size: Size) -> Iterator[Cell]:
    most = range(max((_splits(table, size) for table in size.problems), default=0))
    if "auto" in size.methods:
        for table in size.problems:
            yield from (Cell("default", table, "auto", split) for split in range(_splits(table, size)))
    for methods in _groups(size):
        for split in most:
            for table in (one for one in size.problems if split < _splits(one, size)):
                yield from (Cell("default", table, method, split) for method in methods)
                yield from (Cell("baseline", table, name, split) for name in BASELINES)


def _groups(size: Size) -> tuple[list[str], list[str]]:
    others = [method for method in size.methods if method != "auto"]
    return [one for one in others if one not in SLOW], [one for one in others if one in SLOW]


def _splits(table: str, size: Size) -> int:
    return min(size.seeds, PROBLEMS[table].splits)
